"""Turns the rows of a table, CSV or Parquet, into task lines: `docllm load FILE.csv`.

The line of a row is the same at every load, so a second load is recognized. No content of a row
raises an error: a row that is no task becomes an `InvalidLine` with its number, counted from 1
behind the names of the columns.
"""

import csv
import difflib
import math
import zlib
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import repeat
from typing import IO, Any, BinaryIO

import orjson

from docllm.producer.arrow import arrow
from docllm.producer.input.column_map import by_names
from docllm.producer.input.lines import (
    STDIN,
    InvalidLine,
    Position,
    ValidLine,
    called,
    damaged,
    open_input,
    read_line,
    unreadable,
)
from docllm.producer.input.other_files import NoLinesError, refuse_kind
from docllm.producer.input.packed import DAMAGED, as_text, beginning_of, seekable
from docllm.producer.text.spreadsheet import EXPORTED, is_formula
from docllm.schemas.errors import ConfigError
from docllm.schemas.task.line.parsing import BOM
from docllm.schemas.task.record.envelope import MAX_TASK_BYTES
from docllm.schemas.text.wording import number_of

PARQUET = b"PAR1"
_MAX_ROW_BYTES = 2 * MAX_TASK_BYTES
_ROWS_AT_ONCE = 64
_NAMED = 12  # columns in a message
_REPAIR = "repair the row and load the table again"
_AS_UTF8 = "save it as `CSV UTF-8`"
_DELIMITERS = ",;\t|"
_NUMBERS = frozenset({"priority", "max_attempts", "time_limit_s"})
_SOURCE = ("text", "uri")

Row = Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRules:
    """How rows become tasks.

    `columns` names the column of each field; None takes the columns that are named as fields are.
    `common` has the fields that all tasks share. `number` makes ids of the numbers of the rows.
    """

    columns: Mapping[str, str] | None = None
    common: Mapping[str, Any] = field(default_factory=dict)
    number: bool = False


def read_table(
    source: str,
    *,
    stdin: BinaryIO,
    rules: TableRules,
    note: Callable[[str], object],
    position: Position | None = None,
) -> Generator[ValidLine | InvalidLine, None, None]:
    """Return every row of the file `source`, or of `stdin` if `source` is `-`.

    `note` hears of columns that nothing is taken from. Raises ConfigError at once if the source
    cannot be opened. The first read raises it for columns that do not fit the rules, and
    NoLinesError if the file is no table.
    """
    file: IO[bytes] = stdin if source == STDIN else open_input(source)
    return _rows(file, source, rules, note, position)


def _rows(
    file: IO[bytes],
    source: str,
    rules: TableRules,
    note: Callable[[str], object],
    position: Position | None,
) -> Generator[ValidLine | InvalidLine, None, None]:
    number = 0
    with ExitStack() as opened:
        if source != STDIN:
            opened.enter_context(file)
        failures, read = _reader(file, opened, position)
        try:
            names, rows_of = read()
            tasks = RowTasks(source, names, rules, note)
            for number, row in enumerate(rows_of(tasks.used), 1):
                yield called("row", tasks.read(number, row))
        except failures as failure:
            if not number:
                raise unreadable(failure) from None
            yield called("row", damaged(number + 1, failure))


# The names of the columns, and what returns the rows, given the places of the cells that are
# needed; a row that cannot be read is its error.
_Table = tuple[Sequence[str], Callable[[Container[int]], Iterable[Row | str]]]


def _reader(
    file: IO[bytes], opened: ExitStack, position: Position | None
) -> tuple[tuple[type[Exception], ...], Callable[[], _Table]]:
    """Return what reads a table, and the errors of damage that reading raises."""
    if beginning_of(file).startswith(PARQUET):
        library, parquet = arrow("Parquet")
        return (*DAMAGED, library.ArrowException), lambda: _of_parquet(file, parquet, opened)
    if position is not None:
        position.follow(file)
    return (*DAMAGED, zlib.error), lambda: _of_csv(opened.enter_context(as_text(file, _refuse)))


class RowTasks:
    """Makes the task line of each row."""

    def __init__(
        self, source: str, names: Sequence[str], rules: TableRules, note: Callable[[str], object]
    ) -> None:
        places = {name: place for place, name in enumerate(names)}
        self._names = names
        self._common = rules.common
        self._is_numbered = rules.number
        self._is_export = tuple(names[: len(EXPORTED)]) == EXPORTED
        self._columns = rules.columns
        if self._columns is None:
            self._require_own_names(source)
            self._columns = by_names(places)
            if rules.number:
                self._columns.pop("id", None)
        self._require(source)
        # The order is that of the fields, so that a line does not depend on that of --map.
        self._places = [(name, places[column]) for name, column in sorted(self._columns.items())]
        self.used = {place for _, place in self._places}
        left = [name for place, name in enumerate(names) if place not in self.used]
        if rules.columns is None and left:
            note(
                f"{source}: nothing is taken from {_listed(left)}; to keep one, name all that "
                f"are needed: --map 'id=COLUMN,text=COLUMN,metadata.X=COLUMN'"
            )

    def read(self, number: int, row: Row | str) -> ValidLine | InvalidLine:
        """Return the task of a row."""
        if isinstance(row, str):
            return InvalidLine(number, "", row, _REPAIR, None)
        if len(row) != len(self._names):
            error = f"has {number_of(len(row), 'cell')}, and the table {len(self._names)} columns"
            fix = f"write each cell with a delimiter, a quote or a line end in quotes; {_REPAIR}"
            return InvalidLine(number, "", error, fix, None)
        line: dict[str, Any] = {}
        if self._is_numbered:
            line["id"] = f"row-{number}"
        for name, place in self._places:
            try:
                value = _value(name, self._unescaped(row[place]))
            except ValueError as error:
                return InvalidLine(number, name, f"{self._of(name)}{error}", _REPAIR, None)
            if value is not None:
                _put(line, name, value)
            elif name == "id" or name in _SOURCE:
                fix = "write it, or leave the row out; then load again"
                return InvalidLine(number, name, f"{self._of(name)}is empty", fix, None)
        line |= self._common
        return self._named(read_line(number, orjson.dumps(line)))

    def _unescaped(self, cell: Any) -> Any:
        """Return a cell without the apostrophe that an export wrote before a formula."""
        if self._is_export and isinstance(cell, str) and cell[:1] == "'" and is_formula(cell[1:]):
            return cell[1:]
        return cell

    def _named(self, line: ValidLine | InvalidLine) -> ValidLine | InvalidLine:
        """Return the line; the error of a bad one names the column."""
        if isinstance(line, ValidLine):
            return line
        return replace(line, error=f"{self._of(line.field.removeprefix('input.'))}{line.error}")

    def _of(self, name: str) -> str:
        """Return the words for a field's column, empty if they would say nothing."""
        column = (self._columns or {}).get(name)
        return "" if column in {None, name} else f"of column {column!r} "

    def _require_own_names(self, source: str) -> None:
        """Refuse a table that an export wrote: its columns describe results."""
        if self._is_export:
            raise ConfigError(
                f"{source} is a table that docllm exported; name the columns to take: "
                "--map id=id,text=result"
            )

    def _require(self, source: str) -> None:
        """Refuse columns of which no row could make a task."""
        columns = self._columns or {}
        for column in columns.values():
            if (count := self._names.count(column)) != 1:
                nearest = difflib.get_close_matches(column, self._names, 1)
                guess = f"did you mean {nearest[0]!r}? " if nearest else ""
                raise ConfigError(
                    f"{source} has {count or 'no'} column{'s' * (count > 1)} {column!r}; "
                    f"{'' if count else guess}its columns are: {_listed(self._names)}"
                )
        if self._is_numbered == ("id" in columns):
            raise ConfigError(
                "--number-rows makes the ids, and --map names a column for them; leave one out"
                if self._is_numbered
                else f"no column of {source} is named as the ids; name it with --map id=COLUMN "
                f"(with all others that are needed), or number the rows with --number-rows; its "
                f"columns are: {_listed(self._names)}"
            )
        if len(sources := [name for name in _SOURCE if name in columns]) > 1:
            raise ConfigError(f"{source} has columns for text and uri; --map one of them")
        if not {"prompt", "type"} & {*columns, *self._common}:
            raise ConfigError(
                f"no column of {source} holds the prompt; say what to do with each row: "
                "--prompt 'Summarize: {document}'"
            )
        for name in self._common:
            if name in columns:
                raise ConfigError(
                    f"--{name} is given, and column {columns[name]!r} holds it too; leave --{name} "
                    "out, or --map the other columns"
                )
        if "prompt" in self._common and not sources:
            raise ConfigError(
                f"--prompt has {{document}}, and no column holds the text; name it with "
                f"--map id=COLUMN,text=COLUMN; the columns of {source} are: {_listed(self._names)}"
            )


def _put(line: dict[str, Any], name: str, value: Any) -> None:
    outer, _, inner = name.partition(".")
    if name in _SOURCE:
        line["input"] = {name: value}
    elif inner:
        line.setdefault(outer, {})[inner] = value
    else:
        line[name] = value


def _value(name: str, cell: Any) -> Any:
    """Return the value of a cell, None if it is empty. Raises ValueError."""
    if cell is None or cell == "" or (isinstance(cell, float) and math.isnan(cell)):
        return None
    if isinstance(cell, bytes):
        cell = _text(cell.decode("utf-8", "surrogateescape"))
    if isinstance(cell, str):
        cell = _text(cell)
        return _number(cell) if name in _NUMBERS or name.startswith("params.") else cell
    if name.startswith("metadata."):
        return orjson.loads(orjson.dumps(cell, default=str))
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    if name in _NUMBERS or name.startswith("params."):
        return cell
    if isinstance(cell, date):
        return cell.isoformat()
    if isinstance(cell, list | dict):
        raise ValueError("is a list or an object, not a text")  # noqa: TRY004 - a cell's content
    return str(cell)


def _text(cell: str) -> str:
    """Return a text. Raises ValueError if it has bytes that are no letters."""
    if not cell.isascii() and not cell.isprintable():
        try:
            cell.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"is not UTF-8 at character {error.start + 1}; save the table as UTF-8"
            ) from None
    if "\0" in cell:
        raise ValueError("holds a NUL byte, which is no text")
    return cell


def _number(cell: str) -> Any:
    """Return the number or truth value that a text is, else the text."""
    try:
        value = orjson.loads(cell)
    except orjson.JSONDecodeError:
        return cell
    return value if isinstance(value, int | float) else cell


def _listed(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(repr(name[:80]) for name in names[:_NAMED]) + rest


def _of_csv(stream: IO[bytes]) -> _Table:
    """Return the columns and rows of CSV. Raises NoLinesError if it has no row of names."""
    csv.field_size_limit(_MAX_ROW_BYTES)
    lines = _CsvLines(stream)
    reader = csv.reader(lines, delimiter=_delimiter(beginning_of(stream)), strict=True)
    try:
        header = next((row for row in reader if row), None)
    except csv.Error as error:
        raise NoLinesError(f"its first row is no CSV: {error}", fix=_REPAIR) from None
    if header is None:
        raise NoLinesError("the file is empty", fix="the first row has the names of the columns")
    names = [name.strip() for name in header]
    if names[0].startswith(("{", "[")):
        raise NoLinesError(
            "the file has JSON, not a table", fix="rename it to end with .jsonl, and load it so"
        )
    return names, lambda _: _csv_rows(reader, lines)


def _csv_rows(reader: Any, lines: "_CsvLines") -> Iterator[Row | str]:
    while True:
        first = reader.line_num + 1
        lines.begin()
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield f"begins at line {first} and is no CSV ({error}); is a quote in it not doubled?"
            continue
        if row:
            yield row


class _CsvLines:
    """The lines of CSV; bytes that are no UTF-8 become halves of surrogate pairs."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._size = 0
        self._is_first = True

    def begin(self) -> None:
        """Begin a row."""
        self._size = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        """Return the next line. Raises EOFError if a row is too large to be read."""
        line = self._stream.readline(_MAX_ROW_BYTES)
        if not line:
            raise StopIteration
        self._size += len(line)
        if self._size >= _MAX_ROW_BYTES:
            raise EOFError(
                f"it has a row of more than {_MAX_ROW_BYTES >> 20} MiB; is a quote not closed?"
            )
        if self._is_first:
            line, self._is_first = line.removeprefix(BOM), False
        return line.decode("utf-8", "surrogateescape")


def _delimiter(head: bytes) -> str:
    """Return what stands most often between the names in the first row."""
    line = head.removeprefix(BOM).lstrip(b"\r\n").split(b"\n", 1)[0].decode("utf-8", "replace")
    without_quoted = "".join(line.split('"')[::2])
    return max(_DELIMITERS, key=without_quoted.count)


def _refuse(head: bytes) -> None:
    """Raise NoLinesError if a file begins as no CSV does."""
    if head.startswith(PARQUET):
        raise NoLinesError("the file is Parquet in an archive", fix="unpack it first")
    if 4 * head.count(0) > len(head):
        raise NoLinesError("the file is UTF-16 without a byte order mark", fix=_AS_UTF8)
    refuse_kind(head.replace(b"\0", b" "), "name a table: CSV or Parquet")
    lines = [line for line in head.split(b"\n")[:-1] if not line.isascii()]
    if lines and not any(map(_is_utf8, lines)):
        raise NoLinesError(
            "the file is not UTF-8, but perhaps Windows-1252 or another encoding of a spreadsheet",
            fix=f"{_AS_UTF8}, or convert it: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW",
        )


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _of_parquet(file: IO[bytes], parquet: Any, opened: ExitStack) -> _Table:
    """Return the columns and rows of Parquet; some rows at once are in memory."""
    file = seekable(file, opened)  # its index is at the end
    table = parquet.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
    return table.schema_arrow.names, lambda used: _parquet_rows(table, used)


def _parquet_rows(table: Any, used: Container[int]) -> Iterator[Row]:
    """Yield the rows, with the cells at the places that are used, and None at the others."""
    names = [name for place, name in enumerate(table.schema_arrow.names) if place in used]
    for batch in table.iter_batches(batch_size=_ROWS_AT_ONCE, columns=names):
        columns = [
            batch.column(name).to_pylist() if place in used else repeat(None, batch.num_rows)
            for place, name in enumerate(table.schema_arrow.names)
        ]
        yield from zip(*columns, strict=True)
