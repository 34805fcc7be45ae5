"""The ledger's schema: the wanted revision, the present one, and the way between them.

Every program reads the revision at its start. Only `migrate` loads Alembic, which takes 12 MB and a
fifth of a second.
"""

import secrets

from sqlalchemy import (
    Connection,
    column,
    insert,
    inspect,
    select,
    table,
    text,
    update,
)

from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.ledger import agent_rows, server_settings
from docllm.schemas.ledger.database import Database, DatabaseError
from docllm.schemas.ledger.errors import (
    DEADLOCK,
    LOCK_WAIT,
    LOCKED,
    code,
    denied,
    file_locked,
    passing,
)
from docllm.schemas.ledger.sql import utc_after, utc_now
from docllm.schemas.ledger.tables import agent, ledger
from docllm.schemas.runtime import crash
from docllm.schemas.version import VERSION

# The revisions that this version knows, in order, and the digest of the tables of each. A ledger
# that has a revision with another digest was made by a development version.
REVISIONS = {"0001": "082fd05354723287"}
# The oldest revision whose programs can work with the newest schema. A migration that only adds
# leaves it alone. One that takes something away raises it, to the revision before its own at most,
# so that agents of the previous version run on while the group is upgraded. How a column is renamed
# in spite of that: docs/explanation/architecture.md, "To change something".
COMPATIBLE_FROM = "0001"
_NAMED = 5  # agents in a message
_ALIVE_S = 12.0  # age of a heartbeat from which its agent counts as not running
_ALEMBIC = table("alembic_version", column("version_num"))
_LOCK = "docllm.migrate"
_LOCK_TRIES = 60  # each try waits one second
_IN_USE = (
    "another program uses the ledger's tables; stop agents and loads, then run: docllm migrate"
)
_DEVELOPMENT = (
    "the database was made by a development version of docllm: export its results with that "
    "version, and load into a new one"
)


def own_revision() -> str:
    """Return the revision that this version of docllm works with."""
    return next(reversed(REVISIONS))


def present_revision(database: Database) -> str | None:
    """Return the revision of the database, None if it is empty."""
    return database.run_singly(_stored_revision)


def require(database: Database) -> None:
    """Raise UnsafeStateError unless this version works with the schema.

    The schema has this version's own revision, or a newer one that still serves this version.
    """
    revision = database.run_singly(_usable_revision)
    if revision is None or revision < own_revision():
        state = "is empty" if revision is None else f"has schema {revision}"
        raise UnsafeStateError(
            f"the database {state}, this version needs {own_revision()}; run: docllm migrate",
            may_pass=True,
        )


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
        if code(error) in {LOCK_WAIT, DEADLOCK}:
            raise UnsafeStateError(f"{_IN_USE} ({getattr(error, 'orig', error)})") from None
        if file_locked(error):
            raise UnreachableError(
                f"the database {database.where} cannot be migrated: {LOCKED}; end that program, "
                "then run: docllm migrate"
            ) from None
        raise


def ledger_id(connection: Connection) -> str:
    """Return the ledger's id, 32 hexadecimal digits."""
    found_id = connection.execute(select(ledger.c.ledger_id)).scalar()
    if found_id is None:
        text = "the ledger has no id; run: docllm migrate"
        raise UnsafeStateError(text, may_pass=True)
    return bytes(found_id).hex()


def _stored_revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_ALEMBIC.name):
        return None
    return connection.execute(select(_ALEMBIC.c.version_num)).scalar()


def _usable_revision(connection: Connection) -> str | None:
    """Return the revision of the database, None if it is empty.

    Raises UnsafeStateError unless this version may work on the ledger, or may migrate it.
    """
    revision = _stored_revision(connection)
    if revision is None:
        return None
    if not _has_column(connection, "ledger", "schema_digest"):
        raise UnsafeStateError(_DEVELOPMENT)
    row = connection.execute(select(ledger.c.compatible_from, ledger.c.schema_digest)).one_or_none()
    # There is no row if the first `migrate` was killed before it drew the ledger's id.
    compatible_from, digest = row or (revision, REVISIONS.get(revision))
    if revision <= own_revision() and digest != REVISIONS.get(revision):
        raise UnsafeStateError(_DEVELOPMENT)
    if compatible_from > own_revision():
        raise UnsafeStateError(
            f"the database has schema {revision}, which serves versions from schema "
            f"{compatible_from} on; this version ({VERSION}) has schema {own_revision()}; "
            "update docllm, and run: docllm migrate"
        )
    return revision


def _migrate(connection: Connection) -> tuple[str | None, str]:
    """Do what `migrate` does, under its lock."""
    from docllm.schemas.ledger.migrations.upgrade import upgrade  # noqa: PLC0415 - see above

    before = _usable_revision(connection)
    if before is not None and before > own_revision():
        return before, before
    if before is not None and before < own_revision():
        _refuse_older_agents(connection)
        _declare_silent_agents_lost(connection)
        _refuse_older_programs(connection)  # before they could meet the new schema
    if before != own_revision():
        upgrade(connection, applied=_note_revision)
    crash.reach("migrate.upgraded")
    _draw_ledger_id(connection)
    connection.commit()
    return before, own_revision()


def _note_revision(connection: Connection, revision: str) -> None:
    """Store the digest of a revision with its number, unless agents run that do not know it."""
    _refuse_older_agents(connection)
    connection.execute(update(ledger).values(schema_digest=REVISIONS[revision]))


def _refuse_older_programs(connection: Connection) -> None:
    """Store from which revision on programs can work with the new schema; it only rises.

    On SQLite the caller commits, because the whole migration is one transaction.
    """
    older = ledger.c.compatible_from < COMPATIBLE_FROM
    connection.execute(update(ledger).where(older).values(compatible_from=COMPATIBLE_FROM))
    if connection.dialect.name != "sqlite":
        connection.commit()


def _refuse_older_agents(connection: Connection) -> None:
    """Raise UnsafeStateError if agents run that do not know the schema to come."""
    older = (
        select(agent.c.name, agent.c.group_name)
        .where(agent_rows.alive(_ALIVE_S), agent.c.revision < COMPATIBLE_FROM)
        .order_by(agent.c.name)
    )
    if rows := connection.execute(older).all():
        names = ", ".join(f"{row.name} of group {row.group_name}" for row in rows[:_NAMED])
        rest = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
        raise UnsafeStateError(
            f"agents of an older version run and do not know the new schema: {names}{rest}; stop "
            "them (SIGTERM lets them finish their calls), then run: docllm migrate"
        )


def _declare_silent_agents_lost(connection: Connection) -> None:
    """End the leases of agents that are silent now, so that none wakes up and settles later."""
    silent = update(agent).where(agent_rows.registered(), agent.c.seen_at <= utc_after(-_ALIVE_S))
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
        row = {
            "ledger_id": secrets.token_bytes(16),
            "compatible_from": COMPATIBLE_FROM,
            "schema_digest": REVISIONS[own_revision()],
        }
        connection.execute(insert(ledger), row)
