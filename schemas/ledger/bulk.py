"""Writes many rows in one statement.

The drivers' own `executemany` costs ten times the CPU per row. Here every value becomes a literal
that needs no escaping: bytes and texts are hexadecimal digits, which no content can break out of,
and numbers are digits.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, insert

from docllm.schemas.ledger.sql import Merge, insert_new

STATEMENT_BYTES = 256 << 10  # larger ones leave the processor's caches
# Otherwise the driver would search the whole statement for placeholders.
_AS_IT_IS = {"no_parameters": True}


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
        connection.execute(insert_new(connection, table) if keep else insert(table), list(rows))
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
    head = f"INSERT INTO {table.name} ({','.join(rows[0])}) VALUES "  # noqa: S608 - our own names
    for values in _pages(rows):
        connection.exec_driver_sql(head + values + tail, execution_options=_AS_IT_IS)


def _pages(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    # A value that all rows share is made a literal once. No literal has a percent sign.
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    shared = {name: _literal(all_[0]) for name, all_ in columns.items() if _are_equal(all_)}
    differing = [name for name in columns if name not in shared]
    shape = ",".join([shared.get(name, "%s") for name in columns])
    page: list[str] = []
    size = 0
    for row in rows:
        values = f"({shape % tuple([_literal(row[name]) for name in differing])})"
        page.append(values)
        size += len(values)
        if size >= STATEMENT_BYTES:
            yield ",".join(page)
            page, size = [], 0
    if page:
        yield ",".join(page)


def _are_equal(values: list[Any]) -> bool:
    return values.count(values[0]) == len(values)


def _literal(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if type(value) is bytes:
        return f"X'{value.hex()}'"
    if isinstance(value, str):
        return f"_utf8mb4 X'{value.encode().hex()}'"
    if value is None:
        return "NULL"
    if isinstance(value, datetime):
        return f"'{value.isoformat(' ', 'microseconds')}'"
    raise TypeError(f"{type(value).__name__} cannot be written in bulk")
