"""Results as rows of a table: CSV, Parquet, or lines of JSON without nested objects.

Every table has the columns of `COLUMNS`. What is neither a text nor a number stands in its cell as
JSON. Flattened, the fields of results that are objects are columns of their own. A table opens no
file: its caller passes the one to write to.
"""

import csv
import io
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, BinaryIO, Protocol

import orjson

from docllm.producer.arrow import arrow
from docllm.producer.text.spreadsheet import is_formula
from docllm.schemas.task.line.parsing import BOM

MAX_FLAT = 200  # columns of results
_PAGE_ROWS, _PAGE_BYTES = 10_000, 32 << 20  # of Parquet's row groups
_MAX_INTEGER = 1 << 63


class Kind(StrEnum):
    """What a column holds."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    TRUTH = "truth"
    TIME = "time"


# A column for each field of a result line, in its order; of an error, one for each of its fields.
COLUMNS: Mapping[str, Kind] = {
    "id": Kind.TEXT,
    "status": Kind.TEXT,
    "result": Kind.TEXT,
    "error.code": Kind.TEXT,
    "error.message": Kind.TEXT,
    "attempts": Kind.INTEGER,
    "model": Kind.TEXT,
    "route": Kind.TEXT,
    "tokens_in": Kind.INTEGER,
    "tokens_out": Kind.INTEGER,
    "cost": Kind.NUMBER,
    "finished_at": Kind.TIME,
    "origin": Kind.TEXT,
    "unpriced_calls": Kind.INTEGER,
    "losses": Kind.INTEGER,
    "overrides": Kind.TEXT,
    "parent": Kind.TEXT,
    "output": Kind.TEXT,
    "mended": Kind.TEXT,
    "omitted": Kind.TEXT,
    "truncated_input": Kind.TRUTH,
}
_RESULT = "result"
_KINDS: Mapping[type, Kind] = {
    str: Kind.TEXT,
    int: Kind.INTEGER,
    float: Kind.NUMBER,
    bool: Kind.TRUTH,
}

Row = dict[str, Any]


class TableFile(Protocol):
    """Writes rows to a file."""

    def begin(self, columns: Mapping[str, Kind]) -> None:
        """Take the columns of all rows."""
        ...

    def add(self, row: Row) -> None:
        """Write a row; a column that it does not have is empty."""
        ...

    def end(self) -> None:
        """Write what is left; the file stays open."""
        ...


class Table:
    """Turns the fields of result lines into rows of a file."""

    def __init__(self, file: TableFile) -> None:
        self._file = file
        file.begin(COLUMNS)

    def write(self, fields: Mapping[str, Any]) -> None:
        """Write the fields of one line."""
        self._file.add(row_of(fields))

    def end(self) -> int:
        """Write what is left; return how many fields of results have no column."""
        self._file.end()
        return 0


class FlatTable:
    """A table with a column for each field of the results that are objects.

    At most `MAX_FLAT` fields get one, the first that occur; the others stay in `result`. All rows
    go through a temporary file, because the columns are known behind the last row only.
    """

    def __init__(self, file: TableFile, *, most: int = MAX_FLAT) -> None:
        self._file = file
        self._most = most
        self._rows = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
        self._kinds: dict[str, Kind | None] = {}
        self._left: set[str] = set()

    def write(self, fields: Mapping[str, Any]) -> None:
        """Keep the fields of one line, and note the fields of its result."""
        row = row_of(fields)
        is_object = _is_object(fields[_RESULT])
        for name, value in _read(row[_RESULT]).items() if is_object else ():
            if name in self._kinds:
                self._kinds[name] = _joined(self._kinds[name], value)
            elif len(self._kinds) < self._most:
                self._kinds[name] = _joined(None, value)
            elif len(self._left) < self._most:
                self._left.add(name)
        self._rows.write(orjson.dumps([is_object, row], option=orjson.OPT_APPEND_NEWLINE))

    def end(self) -> int:
        """Write all rows; return how many fields of results have no column, `MAX_FLAT` at most."""
        names = {name: f"{_RESULT}.{name}" for name in self._kinds}
        kinds = {names[name]: kind or Kind.TEXT for name, kind in self._kinds.items()}
        self._file.begin({**COLUMNS, **kinds})
        self._rows.seek(0)
        with self._rows:
            for line in self._rows:
                is_object, row = orjson.loads(line)
                self._file.add(_flat(row, names, kinds) if is_object else row)
        self._file.end()
        return len(self._left)


def row_of(fields: Mapping[str, Any]) -> Row:
    """Return the row of a line's fields: texts, numbers, and the rest as JSON."""
    row = {name: _cell(value) for name, value in fields.items()}
    if error := fields["error"]:
        row["error.code"], row["error.message"] = error["code"], error["message"]
    del row["error"]
    return row


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if not isinstance(value, orjson.Fragment):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    text = orjson.dumps(value).decode().strip()
    return orjson.loads(text) if text == "null" or text.startswith('"') else text


def _is_object(value: Any) -> bool:
    return isinstance(value, orjson.Fragment) and orjson.dumps(value).lstrip().startswith(b"{")


def _read(text: str) -> Mapping[str, Any]:
    """Return an object of JSON with exact numbers; an empty one if it is nested too deep."""
    try:
        value: Mapping[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value


def _joined(kind: Kind | None, value: Any) -> Kind | None:
    """Return the kind of a column that gets one more value; None while it has none."""
    if value is None:
        return kind
    new = _KINDS.get(type(value), Kind.TEXT)
    if new is Kind.INTEGER and not -_MAX_INTEGER <= value < _MAX_INTEGER:
        new = Kind.TEXT
    if kind is None or kind is new:
        return new
    return Kind.NUMBER if {kind, new} == {Kind.INTEGER, Kind.NUMBER} else Kind.TEXT


def _flat(row: Row, names: Mapping[str, str], kinds: Mapping[str, Kind]) -> Row:
    """Return a row with the fields of its result in their columns, and the others in `result`."""
    value = _read(row[_RESULT])
    if not value:
        return row
    left = {}
    for name, field in value.items():
        column = names.get(name)
        if column is None:
            left[name] = field
        elif kinds[column] is Kind.TEXT and field is not None and not isinstance(field, str):
            row[column] = json.dumps(field, ensure_ascii=False, separators=(",", ":"))
        else:
            row[column] = field
    row[_RESULT] = _cell(left) if left else None
    return row


class CsvFile:
    """CSV as in RFC 4180, in UTF-8.

    A text that a spreadsheet would take for a formula gets an apostrophe before it. `shown` makes a
    text safe for a terminal.
    """

    def __init__(
        self, file: BinaryIO, *, bom: bool = False, shown: Callable[[str], str] | None = None
    ) -> None:
        self._file = file
        self._shown = shown
        self._columns: Sequence[str] = ()
        if bom:
            file.write(BOM)

    def begin(self, columns: Mapping[str, Kind]) -> None:
        """Write the names of the columns."""
        self._columns = list(columns)
        self._write(self._columns)

    def add(self, row: Row) -> None:
        """Write a row."""
        self._write(row.get(column) for column in self._columns)

    def end(self) -> None:
        """Do nothing: every row is written."""

    def _write(self, values: Iterable[Any]) -> None:
        text = io.StringIO()
        csv.writer(text).writerow([self._safe(value) for value in values])
        line = text.getvalue()
        self._file.write((self._shown(line) if self._shown else line).encode())

    def _safe(self, value: Any) -> Any:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str) and is_formula(value):
            return f"'{value}"
        return value


class JsonFile:
    """Lines of JSON that have all columns."""

    def __init__(self, file: BinaryIO, *, shown: Callable[[str], str] | None = None) -> None:
        self._file = file
        self._shown = shown
        self._empty: Row = {}

    def begin(self, columns: Mapping[str, Kind]) -> None:
        """Take the names of the columns."""
        self._empty = dict.fromkeys(columns)

    def add(self, row: Row) -> None:
        """Write a row."""
        line = json.dumps(self._empty | row, ensure_ascii=False, separators=(",", ":"))
        self._file.write(f"{self._shown(line) if self._shown else line}\n".encode())

    def end(self) -> None:
        """Do nothing: every row is written."""


class ParquetFile:
    """Parquet with typed columns, some thousand rows in each row group."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._arrow, self._parquet = arrow("the format parquet")
        self._rows: list[Row] = []
        self._size = 0

    def begin(self, columns: Mapping[str, Kind]) -> None:
        """Begin the file."""
        types = {
            Kind.TEXT: self._arrow.string(),
            Kind.INTEGER: self._arrow.int64(),
            Kind.NUMBER: self._arrow.float64(),
            Kind.TRUTH: self._arrow.bool_(),
            Kind.TIME: self._arrow.timestamp("us", tz="UTC"),
        }
        self._times = [name for name, kind in columns.items() if kind is Kind.TIME]
        self._schema = self._arrow.schema([(name, types[kind]) for name, kind in columns.items()])
        self._writer = self._parquet.ParquetWriter(self._file, self._schema, compression="zstd")

    def add(self, row: Row) -> None:
        """Keep a row for the next row group."""
        for name in self._times:
            row[name] = row[name] and datetime.fromisoformat(row[name])
        self._rows.append(row)
        self._size += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(self._rows) == _PAGE_ROWS or self._size > _PAGE_BYTES:
            self._write()

    def end(self) -> None:
        """Write the last row group and the end of the file."""
        if self._rows:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        self._writer.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows, self._size = [], 0
