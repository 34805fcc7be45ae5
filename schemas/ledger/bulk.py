"""Writes many rows in one statement.

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
    if not rows:
        return
    if connection.dialect.name == "sqlite":
        kept = " ON CONFLICT DO NOTHING" if keep else ""
        _write_to_sqlite(connection, table, rows, kept)
        return
    key_column = next(iter(table.primary_key.columns)).name
    tail = f" ON DUPLICATE KEY UPDATE {key_column}={table.name}.{key_column}" if keep else ""
    _write(connection, table, rows, tail)


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
    _write(connection, table, joined, merge.server_clause(table))


def _write(
    connection: Connection, table: Table[Any], rows: Sequence[Mapping[str, Any]], tail: str
) -> None:
    head = _head(table, rows)
    for values in _pages(rows):
        connection.exec_driver_sql(head + values + tail, execution_options=AS_IT_IS)


def _head(table: Table[Any], rows: Sequence[Mapping[str, Any]]) -> str:
    return f"INSERT INTO {table.name} ({','.join(rows[0])}) VALUES "  # noqa: S608 - our own names


def _pages(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    # A value that all rows share is made a literal once. No literal has a percent sign.
    shared: list[str] = []
    differing: list[Iterator[str]] = []
    for name in rows[0]:
        column = [row[name] for row in rows]
        if column.count(column[0]) == len(column):
            shared.append(_LITERALS[type(column[0])](column[0]))
        else:
            shared.append("%s")
            differing.append(_literals(column))
    shape = f"({','.join(shared)})"
    page: list[str] = []
    size = 0
    for literals in zip(*differing, strict=True) if differing else repeat((), len(rows)):
        values = shape % literals
        page.append(values)
        size += len(values)
        if size >= STATEMENT_BYTES:
            yield ",".join(page)
            page, size = [], 0
    if page:
        yield ",".join(page)


def _literals(column: list[Any]) -> Iterator[str]:
    """Return the literals of a column; each is made when it is asked for."""
    kinds = set(map(type, column))
    if len(kinds) == 1:
        return map(_LITERALS[kinds.pop()], column)
    return (_LITERALS[type(value)](value) for value in column)


def _write_to_sqlite(
    connection: Connection, table: Table[Any], rows: Sequence[Mapping[str, Any]], tail: str
) -> None:
    times = [name for name in rows[0] if isinstance(table.c[name].type, DateTime)]
    places = ",".join("?" * len(rows[0]))
    connection.exec_driver_sql(
        f"{_head(table, rows)}({places}){tail}",
        [tuple((_with_texts(row, times) if times else row).values()) for row in rows],
    )


def _with_texts(row: Mapping[str, Any], times: Sequence[str]) -> dict[str, Any]:
    return {**row, **{name: row[name] and _time(row[name]) for name in times}}


def _time(value: datetime) -> str:
    return value.isoformat(" ", "microseconds")


class _Literals(dict[type, Callable[[Any], str]]):
    """How the values of each type are written."""

    def __missing__(self, kind: type) -> Callable[[Any], str]:
        """Find a subclass of `str` once; a subclass of `int` may print itself as a name."""
        if not issubclass(kind, str):
            raise TypeError(f"{kind.__name__} cannot be written in bulk")
        self[kind] = self[str]
        return self[kind]


_LITERALS = _Literals(
    {
        int: str,
        bytes: lambda value: f"X'{value.hex()}'",
        str: lambda value: f"_utf8mb4 X'{value.encode().hex()}'",
        type(None): lambda _: "NULL",
        datetime: lambda value: f"'{_time(value)}'",
    }
)
