"""Turns rows of a Python program, such as dicts or a DataFrame, into task lines.

A row becomes the line that `docllm load` makes of the same row of a table, so that a second
`submit` of the same rows is recognized.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from docllm.producer.input.column_map import OBJECTS, is_field
from docllm.producer.input.lines import InvalidLine, ValidLine, called, read_line
from docllm.producer.input.tables import RowTasks, TableRules
from docllm.schemas.errors import ConfigError
from docllm.schemas.task.line.strict_json import LineError

_MOST_FORMS = 100  # kinds of rows, by their columns, that are remembered
_NO_DICT = "write dicts, such as {'id': 'a', 'text': '...'}"


@dataclass(slots=True, kw_only=True)
class Rows:
    """How the rows of a batch become tasks.

    `id` and `text` name their columns; the index of a DataFrame is the id if no column is named so,
    and `id` may be its name. `common` has the fields that all tasks share. Without it, each row is
    a whole task line, as a dict or as JSON. With `number`, the ids are `row-1`, `row-2` and so on.
    """

    rows: Iterable[Any]
    common: Mapping[str, Any]
    id: str | None = None
    text: str | None = None
    number: bool = False
    _makers: dict[tuple[str, ...], RowTasks] = field(default_factory=dict, init=False)

    def lines(self) -> Iterator[ValidLine | InvalidLine]:
        """Yield each row as a task line or as a bad row, in order, counted from 1.

        Raises ConfigError for what is no rows at all.
        """
        is_table = bool(self.common)
        for number, row in enumerate(_dicts(self.rows, self.id), 1):
            if isinstance(row, str | bytes) and not is_table:
                if text := _utf8(row):
                    yield _json_line(number, text)
            elif not isinstance(row, Mapping):
                error = f"is a {type(row).__name__}, not a dict"
                yield InvalidLine(number, "", error, _NO_DICT, None, noun="row")
            elif is_table:
                yield self._task(number, _flat(row))
            else:
                yield _whole_line(number, row)

    def _task(self, number: int, row: dict[str, Any]) -> ValidLine | InvalidLine:
        names = tuple(row)
        try:
            tasks = self._makers.get(names) or self._maker(names)
        except LineError as error:
            return InvalidLine(number, error.field, error.error, error.fix, None, noun="row")
        return called("row", tasks.read(number, tuple(row.values())))

    def _maker(self, names: tuple[str, ...]) -> RowTasks:
        """Return what makes the tasks of rows with these columns. Raises LineError."""
        rules = TableRules(columns=self._columns(names), common=self.common, number=self.number)
        try:
            maker = RowTasks("the row", names, rules, _nothing)
        except ConfigError as error:
            raise LineError("", str(error), "give it other columns") from None
        if len(self._makers) < _MOST_FORMS:
            self._makers[names] = maker
        return maker

    def _columns(self, names: Sequence[str]) -> dict[str, str]:
        """Return the column of each field. Raises LineError."""
        columns = {name: name for name in names if is_field(name)}
        if self.number:
            columns.pop("id", None)
        named = {"id": self.id, "text": self.text}
        columns |= {name: column for name, column in named.items() if column is not None}
        own = f"its columns are: {', '.join(names)}"
        for field_name, column in columns.items():
            if column not in names:
                raise LineError(field_name, f"has no column {column!r}", own)
            if field_name in self.common:
                error = f"is given for all rows, and in column {column!r} too"
                raise LineError(field_name, error, "leave one of them out")
        if not self.number and "id" not in columns:
            fix = f"name their column with id='COLUMN', or set number_rows=True; {own}"
            raise LineError("id", "is missing", fix)
        if "prompt" in self.common and not {"text", "uri"} & columns.keys():
            fix = f"name the column of the documents with text='COLUMN'; {own}"
            raise LineError("text", "is missing", fix)
        return columns


def _dicts(rows: Any, id_name: str | None) -> Iterator[Any]:
    """Yield the rows, those of a DataFrame as dicts with its index as the id.

    Raises ConfigError for what is no rows at all.
    """
    if hasattr(rows, "iter_rows"):  # polars
        yield from rows.iter_rows(named=True)
    elif hasattr(rows, "itertuples"):  # pandas
        names = [str(name) for name in rows.columns]
        _require_different(names)
        index_name = id_name if id_name == rows.index.name else None
        new = {index_name or "id"} - {*names}
        for index, *cells in rows.itertuples(index=True, name=None):
            row = dict(zip(names, map(_cell, cells), strict=True))
            yield dict.fromkeys(new, _cell(index)) | row
    elif not isinstance(rows, Iterable) or isinstance(rows, Mapping | str | bytes):
        raise ConfigError(f"rows is a {type(rows).__name__}; give a list of dicts or a DataFrame")
    else:
        yield from rows


def _require_different(names: Sequence[str]) -> None:
    for name in names:
        if (count := names.count(name)) > 1:
            listed = ", ".join(map(repr, names))
            raise ConfigError(f"rows has {count} columns {name!r}; its columns are: {listed}")


def _cell(value: Any) -> Any:
    """Return a cell of a DataFrame as a value of Python; None if it is missing."""
    if type(value).__name__ in {"NaTType", "NAType"}:
        return None
    return value.item() if hasattr(value, "item") and hasattr(value, "dtype") else value


def _flat(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a row whose dicts `metadata` and `params` are columns such as `metadata.year`."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if name in OBJECTS and isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": of_inner for inner, of_inner in value.items()}
        else:
            flat[str(name)] = value
    return flat


def _whole_line(number: int, row: Mapping[Any, Any]) -> ValidLine | InvalidLine:
    if "text" in row:  # of a row for a prompt that the batch was not given
        error = "is not a field of a task line, and the batch has no prompt"
        fix = "make the batch with prompt='Summarize: {document}'"
        return InvalidLine(number, "text", error, fix, None, noun="row")
    try:
        text = orjson.dumps(row, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        fix = "write texts, numbers, lists and dicts with text keys"
        return InvalidLine(number, "", f"cannot be JSON: {error}", fix, None, noun="row")
    return called("row", read_line(number, text))


def _json_line(number: int, text: bytes) -> ValidLine | InvalidLine:
    if b"\n" in text:
        fix = "write each task in one line"
        return InvalidLine(number, "", "has several lines", fix, None, noun="row")
    return called("row", read_line(number, text))


def _utf8(line: str | bytes) -> bytes:
    """Return a line without blanks around it; what is no UTF-8 is left for its reader to refuse."""
    text = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
    return text.strip()


def _nothing(_text: str) -> None:
    pass
