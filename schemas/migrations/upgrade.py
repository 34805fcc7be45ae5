"""Runs the migrations by Alembic. Imported by `migrate` alone."""

from pathlib import Path

from alembic.config import Config as AlembicConfig
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from schemas import crash


def scripts() -> ScriptDirectory:
    """Return the migrations as Alembic sees them."""
    return ScriptDirectory(str(Path(__file__).parent))


def upgrade(connection: Connection) -> None:
    """Run what is missing, up to the newest revision."""
    found = scripts()
    with EnvironmentContext(AlembicConfig(), found, fn=lambda revision, _context: found._upgrade_revs("head", revision)) as environment:  # noqa: SLF001 - what alembic.command.upgrade calls
        environment.configure(connection=connection, on_version_apply=lambda **_: crash.reach("migrate.revision"))
        with environment.begin_transaction():
            environment.run_migrations()
    connection.commit()
