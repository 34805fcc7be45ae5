"""Runs the migrations with Alembic. Only `migrate` imports this module."""

from collections.abc import Callable
from pathlib import Path

from alembic.config import Config as AlembicConfig
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from docllm.schemas.runtime import crash


def scripts() -> ScriptDirectory:
    """Return the migrations as Alembic reads them."""
    return ScriptDirectory(str(Path(__file__).parent))


def upgrade(connection: Connection, *, applied: Callable[[Connection, str], None]) -> None:
    """Run the missing migrations, up to the newest revision.

    `applied` gets each revision, in the transaction that stores its number. If it raises, the
    revision counts as missing and runs again.
    """

    def stored(revision: str) -> None:
        applied(connection, revision)
        crash.reach("migrate.revision")

    directory = scripts()
    with EnvironmentContext(
        AlembicConfig(),
        directory,
        fn=lambda revision, _context: directory._upgrade_revs("head", revision),  # noqa: SLF001
    ) as environment:
        environment.configure(
            connection=connection,
            on_version_apply=lambda step, **_: stored(step.up_revision_id),
        )
        with environment.begin_transaction():
            environment.run_migrations()
    connection.commit()
