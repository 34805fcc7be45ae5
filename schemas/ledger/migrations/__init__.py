"""The ledger's schema: the wanted revision, the present one, and the way between them.

Every program reads the revision at its start. Only `migrate` loads Alembic, which takes 12 MB and a
fifth of a second.
"""

import secrets
from pathlib import Path

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    column,
    false,
    insert,
    inspect,
    not_,
    select,
    table,
    text,
    update,
)

from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.ledger import agent_rows, server_settings
from docllm.schemas.ledger.database import Database, DatabaseError
from docllm.schemas.ledger.errors import (
    LOCKED,
    deadlocked,
    denied,
    file_locked,
    locked_out,
    passing,
)
from docllm.schemas.ledger.sql import utc_after, utc_now
from docllm.schemas.ledger.tables import agent, ledger
from docllm.schemas.runtime import crash
from docllm.schemas.version import VERSION

VERSIONS = Path(__file__).parent / "versions"
# The oldest revision whose programs can work with the newest schema. A migration that only adds
# leaves it alone. One that takes something away raises it, to the revision before its own at most,
# so that agents of the previous version run on while the group is upgraded. How a column is renamed
# in spite of that: docs/explanation/architecture.md, "To change something".
COMPATIBLE_FROM = "0005"
_NAMED = 5  # agents in a message
_ALIVE_S = 12.0  # age of a heartbeat from which its agent counts as not running
_ALEMBIC = table("alembic_version", column("version_num"))
_LOCK = "docllm.migrate"
_LOCK_TRIES = 60  # each try waits one second
_IN_USE = (
    "another program uses the ledger's tables; stop agents and loads, then run: docllm migrate"
)


def own_revision() -> str:
    """Return the revision that this version of docllm works with."""
    return max(_own_revisions())


def present_revision(database: Database) -> str | None:
    """Return the revision of the database, None if it is empty."""
    return database.run_singly(_stored_revision)


def require(database: Database) -> None:
    """Raise UnsafeStateError unless this version works with the schema.

    The schema has this version's own revision, or a newer one that still serves this version.
    """
    database.run_singly(_require)


def migrate(database: Database) -> tuple[str | None, str]:
    """Bring the schema to the wanted revision; return the revisions before and after.

    The ledger's id is drawn if it is missing. MySQL commits each DDL statement by itself, so two
    migrations at once would collide. Therefore there is one lock, and every step can run again.
    A newer schema that serves this version is left alone. Raises UnsafeStateError if agents run
    that do not know the new schema, or if another program uses the tables, and DeniedError if the
    database's user lacks a right.
    """
    try:
        if refused := database.run_singly(server_settings.refusing):
            raise UnsafeStateError(f"the database {database.where} cannot be used: {refused}")
        with database.engine.connect() as connection:
            _lock(connection)
            try:
                return _migrate(connection)
            finally:
                _unlock(connection)
    except DatabaseError as error:
        database.require_right(error)
        database.require_settings(error)
        if locked_out(error) or deadlocked(error):
            raise UnsafeStateError(f"{_IN_USE} ({getattr(error, 'orig', error)})") from None
        if file_locked(error):
            raise UnreachableError(
                f"the database {database.where} cannot be migrated: {LOCKED}; end that program, "
                "then run: docllm migrate"
            ) from None
        raise


def agents_before(connection: Connection, revision: str, group: str | None = None) -> list[str]:
    """Return the running agents, of all groups or of one, that know only older revisions."""
    return [
        f"{row.name} of group {row.group_name}"
        for row in connection.execute(_alive_before(agent.c.revision >= revision)).all()
        if group in (None, row.group_name)
    ]


def serve_from(connection: Connection, revision: str) -> None:
    """Refuse programs from now on whose version knows only older revisions than this."""
    older = ledger.c.compatible_from < revision
    connection.execute(update(ledger).where(older).values(compatible_from=revision))


def ledger_id(connection: Connection) -> str:
    """Return the ledger's id, 32 hexadecimal digits."""
    found_id = connection.execute(select(ledger.c.ledger_id)).scalar()
    if found_id is None:
        text = "the ledger has no id; run: docllm migrate"
        raise UnsafeStateError(text, may_pass=True)
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


def _require(connection: Connection) -> None:
    revision = _stored_revision(connection)
    if _newer(connection, revision):
        return
    if revision != own_revision():
        state = "is empty" if revision is None else f"has schema {revision}"
        raise UnsafeStateError(
            f"the database {state}, this version needs {own_revision()}; run: docllm migrate",
            may_pass=True,
        )
    if _stored_compatible_from(connection) > own_revision():
        raise UnsafeStateError(
            f"a newer version of docllm is changing the database's schema, and this version "
            f"({VERSION}, schema {own_revision()}) does not know the new one; update docllm, and "
            "run: docllm migrate"
        )


def _migrate(connection: Connection) -> tuple[str | None, str]:
    """Do what `migrate` does, under its lock."""
    from docllm.schemas.ledger.migrations.upgrade import upgrade  # noqa: PLC0415 - see above

    before = _stored_revision(connection)
    if _newer(connection, before):
        return before, str(before)
    if before != own_revision():
        _refuse_older_agents(connection)
        _declare_silent_agents_lost(connection)
        _note_compatible(connection)  # before older programs could meet the new schema
        upgrade(connection, check=_refuse_older_agents)
    crash.reach("migrate.upgraded")
    _draw_ledger_id(connection)
    _note_compatible(connection)
    connection.commit()
    return before, own_revision()


def _newer(connection: Connection, revision: str | None) -> bool:
    """Return whether the schema is newer than this version and serves it.

    Raises UnsafeStateError if it is newer and does not serve this version.
    """
    if revision is None or revision in _own_revisions():
        return False
    compatible_from = _stored_compatible_from(connection)
    if compatible_from and compatible_from <= own_revision():
        return True
    raise UnsafeStateError(
        f"the database has schema {revision}, which this version ({VERSION}, "
        f"schema {own_revision()}) does not know; update docllm"
    )


def _stored_compatible_from(connection: Connection) -> str:
    """Return the oldest revision whose programs the schema serves, '' if that is not stored."""
    if not _has_column(connection, "ledger", "compatible_from"):
        return ""
    return connection.execute(select(ledger.c.compatible_from)).scalar() or ""


def _note_compatible(connection: Connection) -> None:
    """Store from which revision on programs can work with the schema; it only rises.

    On SQLite the caller commits, because the whole migration is one transaction.
    """
    if _has_column(connection, "ledger", "compatible_from"):
        serve_from(connection, COMPATIBLE_FROM)
        if connection.dialect.name != "sqlite":
            connection.commit()


def _refuse_older_agents(connection: Connection) -> None:
    """Raise UnsafeStateError if agents run that do not know the schema to come."""
    if not _has_column(connection, "agent", "lost_at"):
        return
    knows: ColumnElement[bool] = false()
    if _has_column(connection, "agent", "revision"):
        knows = agent.c.revision >= COMPATIBLE_FROM
    if rows := connection.execute(_alive_before(knows)).all():
        names = ", ".join(f"{row.name} of group {row.group_name}" for row in rows[:_NAMED])
        rest = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
        raise UnsafeStateError(
            f"agents of an older version run and do not know the new schema: {names}{rest}; stop "
            "them (SIGTERM lets them finish their calls), then run: docllm migrate"
        )


def _alive_before(knows: ColumnElement[bool]) -> Select[tuple[str, str]]:
    """Return the query for the running agents that do not know a schema."""
    return (
        select(agent.c.name, agent.c.group_name)
        .where(agent_rows.alive(_ALIVE_S), not_(knows))
        .order_by(agent.c.name)
    )


def _declare_silent_agents_lost(connection: Connection) -> None:
    """End the leases of agents that are silent now, so that none wakes up and settles later."""
    if _has_column(connection, "agent", "lost_at"):
        silent = update(agent).where(
            agent_rows.registered(), agent.c.seen_at <= utc_after(-_ALIVE_S)
        )
        connection.execute(silent.values(lost_at=utc_now()))
        connection.commit()


def _has_column(connection: Connection, table_name: str, column_name: str) -> bool:
    inspector = inspect(connection)
    return inspector.has_table(table_name) and any(
        info["name"] == column_name for info in inspector.get_columns(table_name)
    )


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        return  # SQLite's transactions include DDL, and there is only one writer
    tries = (
        connection.execute(text("SELECT GET_LOCK(:name, 1)"), {"name": _LOCK}).scalar()
        for _ in range(_LOCK_TRIES)
    )
    try:
        is_locked = 1 in tries
    except DatabaseError as error:
        if denied(error) or passing(error):
            raise
        raise UnsafeStateError(
            f"the server has no GET_LOCK, which keeps two migrations apart "
            f"({getattr(error, 'orig', error)}); run migrate at the server itself, "
            "not through a proxy, and with a mode of its cluster that permits it"
        ) from None
    if not is_locked:
        raise UnsafeStateError("another migrate is running; run it again when that one has ended")


def _unlock(connection: Connection) -> None:
    connection.rollback()  # what an error left
    if connection.dialect.name != "sqlite":
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": _LOCK})
        connection.commit()


def _draw_ledger_id(connection: Connection) -> None:
    if connection.execute(select(ledger.c.ledger_id)).scalar() is None:
        connection.execute(insert(ledger), {"ledger_id": secrets.token_bytes(16)})
