"""Writes many rows in one statement, column by column.

The `executemany` of a server's driver costs ten times the CPU per row. Here every value becomes a
literal that needs no escaping: bytes and texts are hexadecimal digits, which no content can break
out of, and numbers are digits. SQLite's driver takes the values as they are.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import repeat
from typing import Any

from sqlalchemy import Connection, DateTime, Table

from docllm.schemas.ledger.sql import AS_IT_IS, Merge

Columns = Mapping[str, Sequence[Any]]

STATEMENT_BYTES = 256 << 10  # larger ones leave the processor's caches


def insert_rows(
    connection: Connection,
    table: Table[Any],
    rows: Sequence[Mapping[str, Any]],
    *,
    keep: bool = False,
) -> None:
    """Insert rows that all have the same columns; with `keep`, existing rows stay as they are.

    A value is an int, bytes, str, datetime (UTC without a zone) or None. The server's errors are
    raised, not ignored.
    """
    if rows:
        insert_columns(connection, table, _columns(rows), keep=keep)


def insert_columns(
    connection: Connection,
    table: Table[Any],
    columns: Columns,
    *,
    keep: bool = False,
) -> None:
    """Insert rows whose values are given column by column; else as `insert_rows`."""
    if connection.dialect.name == "sqlite":
        kept = " ON CONFLICT DO NOTHING" if keep else ""
        _write_to_sqlite(connection, table, columns, kept)
        return
    key_column = next(iter(table.primary_key.columns)).name
    tail = f" ON DUPLICATE KEY UPDATE {key_column}={table.name}.{key_column}" if keep else ""
    _write(connection, table, columns, tail)


def merge_rows(
    connection: Connection, table: Table[Any], rows: Iterable[Mapping[str, Any]], merge: Merge
) -> None:
    """Insert rows with the same columns; a row whose key exists is merged into the existing row.

    Rows with equal keys are merged with each other first.
    """
    names = [column.name for column in table.primary_key]
    by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple([row[name] for name in names])
        if key in by_key:
            merge.join(by_key[key], row)
        else:
            by_key[key] = dict(row)
    joined = [by_key[key] for key in sorted(by_key)]
    if not joined:
        return
    if connection.dialect.name == "sqlite":
        connection.execute(merge.sqlite_insert(table), joined)
        return
    _write(connection, table, _columns(joined), merge.server_clause(table))


def _columns(rows: Sequence[Mapping[str, Any]]) -> Columns:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _write(connection: Connection, table: Table[Any], columns: Columns, tail: str) -> None:
    head = _head(table, columns)
    for page in _pages(columns.values()):
        # Whole statements are large, and so are copied as seldom as possible.
        page[0] = head + page[0]
        page[-1] += tail
        connection.exec_driver_sql(",".join(page), execution_options=AS_IT_IS)


def _head(table: Table[Any], names: Iterable[str]) -> str:
    return f"INSERT INTO {table.name} ({','.join(names)}) VALUES "  # noqa: S608 - our own names


def _pages(columns: Iterable[Sequence[Any]]) -> Iterator[list[str]]:
    """Yield the rows of each statement as literals."""
    # A value that all rows share is made a literal once. No literal has a percent sign.
    places: list[str] = []
    differing: list[Iterable[Any]] = []
    for column in columns:
        if column.count(column[0]) == len(column):
            places.append(_literal(column[0]))
        elif len(set(map(type, column))) == 1:
            place, digits = _LITERALS[type(column[0])]
            places.append(place)
            differing.append(map(digits, column) if digits else column)
        else:
            places.append("%s")
            differing.append(map(_literal, column))
        count = len(column)
    shape = f"({','.join(places)})"
    page: list[str] = []
    size = 0
    for values in zip(*differing, strict=True) if differing else repeat((), count):
        row = shape % values
        page.append(row)
        size += len(row)
        if size >= STATEMENT_BYTES:
            yield page
            page, size = [], 0
    if page:
        yield page


def _write_to_sqlite(
    connection: Connection, table: Table[Any], columns: Columns, tail: str
) -> None:
    values = [
        [time and _time(time) for time in column]
        if isinstance(table.c[name].type, DateTime)
        else column
        for name, column in columns.items()
    ]
    places = ",".join("?" * len(columns))
    connection.exec_driver_sql(
        f"{_head(table, columns)}({places}){tail}", list(zip(*values, strict=True))
    )


def _time(value: datetime) -> str:
    return value.isoformat(" ", "microseconds")


class _Literals(dict[type, tuple[str, Callable[[Any], str] | None]]):
    """How the values of each type are written: a place in a text, and what makes the digits."""

    def __missing__(self, kind: type) -> tuple[str, Callable[[Any], str] | None]:
        """Find a subclass of `str` once; a subclass of `int` may print itself as a name."""
        if not issubclass(kind, str):
            raise TypeError(f"{kind.__name__} cannot be written in bulk")
        self[kind] = self[str]
        return self[kind]


_LITERALS = _Literals(
    {
        int: ("%d", None),
        bytes: ("X'%s'", bytes.hex),
        str: ("_utf8mb4 X'%s'", lambda value: value.encode().hex()),
        type(None): ("%s", lambda _: "NULL"),
        datetime: ("'%s'", _time),
    }
)


def _literal(value: Any) -> str:
    place, digits = _LITERALS[type(value)]
    return place % (digits(value) if digits else value)
