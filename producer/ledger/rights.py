"""Which rights the database's user lacks for what the programs do. Changes nothing."""

from collections.abc import Container, Iterator

from sqlalchemy import Connection, Executable, Table, delete, false, insert, select, update

from docllm.schemas.ledger.database import DatabaseError
from docllm.schemas.ledger.errors import denied, denied_right
from docllm.schemas.ledger.tables import metadata


def missing(connection: Connection) -> list[str]:
    """Return the rights that are missing, such as `INSERT on task`, over all tables.

    A server refuses a statement before it looks for rows, so none of these statements meets a row.
    """
    missing_rights = []
    with connection.begin_nested() as savepoint:
        for table in metadata.sorted_tables:
            for statement in _statements(table):
                try:
                    connection.execute(statement)
                except DatabaseError as error:
                    if not denied(error):
                        raise
                    missing_rights.append(f"{denied_right(error)} on {table.name}")
        savepoint.rollback()
    return list(dict.fromkeys(missing_rights))


def reads_only(missing_rights: Container[str]) -> bool:
    """Return whether the user may write to no table, so that it is meant to read."""
    return all(
        f"{right} on {table.name}" in missing_rights
        for table in metadata.sorted_tables
        for right in ("INSERT", "UPDATE", "DELETE")
    )


def _statements(table: Table) -> Iterator[Executable]:
    names = [column.name for column in table.columns]
    yield select(table).where(false()).with_for_update()
    yield insert(table).from_select(names, select(table).where(false()), include_defaults=False)
    yield update(table).where(false()).values({name: table.c[name] for name in names})
    yield delete(table).where(false())
