"""The ledger's schema: the wanted revision, the present one, and the way between them.

Every program reads the revision at its start. Only `migrate` loads Alembic, which takes 12 MB and a
fifth of a second.
"""

import secrets
from pathlib import Path

from sqlalchemy import Connection, column, insert, inspect, select, table, text

from schemas.errors import UnsafeStateError
from schemas.ledger.database import Database, DatabaseError
from schemas.ledger.errors import locked_out
from schemas.ledger.tables import ledger
from schemas.runtime import crash
from schemas.version import VERSION

VERSIONS = Path(__file__).parent / "versions"
_ALEMBIC = table("alembic_version", column("version_num"))
_LOCK = "docllm.migrate"
_LOCK_TRIES = 60  # of one second each
_IN_USE = (
    "another program uses the ledger's tables; stop agents and loads, "
    "then run: python -m producer migrate"
)


def own_revision() -> str:
    """Return the revision that this version of docllm works with."""
    return max(_own_revisions())


def present_revision(database: Database) -> str | None:
    """Return the revision of the database, None if it is empty."""
    return database.auto(_stored_revision)


def require(database: Database) -> None:
    """Raise UnsafeStateError unless the schema has the revision that this version works with."""
    revision = present_revision(database)
    _refuse_newer(revision)
    if revision != own_revision():
        state = "is empty" if revision is None else f"has schema {revision}"
        raise UnsafeStateError(
            f"the database {state}, this version needs {own_revision()}; run: "
            "python -m producer migrate"
        )


def migrate(database: Database) -> tuple[str | None, str]:
    """Bring the schema to the wanted revision; return the revisions before and after.

    The ledger's id is drawn if it is missing. MySQL commits each DDL statement by itself, so two
    migrations at once would collide. Therefore there is one lock, and every step can run again.
    Raises UnsafeStateError if another program uses a table for too long, and DeniedError if the
    database's user lacks a right.
    """
    from schemas.ledger.migrations.upgrade import upgrade  # noqa: PLC0415 - see above

    before = present_revision(database)
    _refuse_newer(before)
    try:
        with database.engine.connect() as connection:
            _lock(connection)
            try:
                upgrade(connection)
                crash.reach("migrate.upgraded")
                _draw_ledger_id(connection)
                connection.commit()
            finally:
                _unlock(connection)
    except DatabaseError as error:
        database.require_right(error)
        if locked_out(error):
            raise UnsafeStateError(f"{_IN_USE} ({getattr(error, 'orig', error)})") from None
        raise
    return before, own_revision()


def ledger_id(connection: Connection) -> str:
    """Return the ledger's id, 32 hexadecimal digits."""
    found_id = connection.execute(select(ledger.c.ledger_id)).scalar()
    if found_id is None:
        raise UnsafeStateError("the ledger has no id; run: python -m producer migrate")
    return bytes(found_id).hex()


def _own_revisions() -> set[str]:
    """Return the revisions of this version.

    They follow one another. A file's name begins with its number, which is its revision.
    """
    return {path.name.partition("_")[0] for path in VERSIONS.glob("[0-9]*.py")}


def _stored_revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_ALEMBIC.name):
        return None
    return connection.execute(select(_ALEMBIC.c.version_num)).scalar()


def _refuse_newer(revision: str | None) -> None:
    if revision is not None and revision not in _own_revisions():
        raise UnsafeStateError(
            f"the database has schema {revision}, which this version ({VERSION}, "
            f"schema {own_revision()}) does not know; update docllm"
        )


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        return  # SQLite's transactions include DDL, and there is only one writer
    tries = (
        connection.execute(text("SELECT GET_LOCK(:name, 1)"), {"name": _LOCK}).scalar()
        for _ in range(_LOCK_TRIES)
    )
    if 1 not in tries:
        raise UnsafeStateError("another migrate is running; run it again when that one has ended")


def _unlock(connection: Connection) -> None:
    if connection.dialect.name != "sqlite":
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": _LOCK})
        connection.commit()


def _draw_ledger_id(connection: Connection) -> None:
    if connection.execute(select(ledger.c.ledger_id)).scalar() is None:
        connection.execute(insert(ledger), {"ledger_id": secrets.token_bytes(16)})
