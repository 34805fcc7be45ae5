"""`migrate` makes the schema on each kind of server, whoever runs it and however often."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import Connection, Inspector, inspect, text

from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger import migrations, tables
from docllm.schemas.ledger.database import Database
from docllm.schemas.runtime import crash
from tests.support.ledger_database import LedgerDatabase

_numbers = count(1)


@pytest.fixture(params=["sqlite", "mariadb", "mysql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server = request.getfixturevalue(f"{request.param}_server")
    return str(
        server.create_database(f"migrations{next(_numbers)}").replace(
            "mysql://", "mysql+pymysql://"
        )
    )


@pytest.fixture
def opened(url: str) -> Iterator[Callable[[], Database]]:
    """Opens separate connections to one empty database."""
    databases: list[Database] = []

    def another() -> Database:
        databases.append(Database(url, timeout_s=10))
        return databases[-1]

    yield another
    for database in databases:
        database.close()


def ledger_ids(database: Database) -> list[bytes]:
    return database.run(lambda c: [row.ledger_id for row in c.execute(tables.ledger.select())])


def test_migrating_twice_changes_nothing(opened: Callable[[], Database]) -> None:
    """The first run makes the schema and draws the ledger's id; a second changes nothing."""
    database = opened()

    first, second = migrations.migrate(database), migrations.migrate(database)

    assert (first, second) == (
        (None, migrations.own_revision()),
        (migrations.own_revision(), migrations.own_revision()),
    )
    migrations.require(database)
    (drawn,) = ledger_ids(database)
    assert database.run(migrations.ledger_id) == drawn.hex()
    assert len(drawn) == 16


def test_several_at_once_make_one_ledger(url: str, opened: Callable[[], Database]) -> None:
    """Programs that start together on an empty database make one schema and one ledger id."""
    program = f"""
from docllm.schemas.ledger.database import Database
from docllm.schemas.runtime import crash
from docllm.schemas.ledger.migrations import migrate
from sqlalchemy import UniqueConstraint
print(migrate(Database({url!r}))[1])
"""
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]

    printed = [process.communicate(timeout=60)[0].strip() for process in started]

    assert printed == [migrations.own_revision()] * 4
    assert len(ledger_ids(opened())) == 1


def test_the_ledgers_id_is_drawn_under_the_lock(
    opened: Callable[[], Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger's id is drawn under the lock; otherwise two migrations could draw two."""
    database = opened()
    draw = migrations._draw_ledger_id
    held: list[object] = []

    def noted(connection: Connection) -> None:
        # On SQLite the transaction is the lock, because there is one writer.
        held.append(
            database.sqlite
            or connection.execute(
                text("SELECT IS_USED_LOCK('docllm.migrate') = CONNECTION_ID()")
            ).scalar()
        )
        draw(connection)

    monkeypatch.setattr(migrations, "_draw_ledger_id", noted)
    migrations.migrate(database)

    assert held == [1]


def test_a_broken_run_is_simply_started_again(opened: Callable[[], Database]) -> None:
    """A migration that was cut off leaves some tables; the next one makes the others.

    That happens where DDL commits by itself.
    """
    database = opened()
    migrations.migrate(database)

    def break_off(connection: Connection) -> None:
        for statement in (
            "DROP TABLE tally",
            "DROP TABLE ledger",
            "DELETE FROM alembic_version",
            _drop_index(database),
        ):
            connection.execute(text(statement))

    database.run(break_off)

    migrations.migrate(database)

    migrations.require(database)
    assert len(ledger_ids(database)) == 1
    assert {index["name"] for index in _inspector(database).get_indexes("task")} >= {"ix_task_due"}


def _drop_index(database: Database) -> str:
    return "DROP INDEX ix_task_due" if database.sqlite else "DROP INDEX ix_task_due ON task"


def _inspector(database: Database) -> Inspector:
    return inspect(database.engine)


def test_texts_and_times_are_the_codes_own(ledger_db: LedgerDatabase) -> None:
    """The server's zone and character set do not matter: times are UTC, texts compare by bytes."""
    database, run = ledger_db.database, ledger_db.run
    names = ["a", "A", "á", "ß", "ss", "\U0001f600", "\U0001f601"]

    run(lambda c: c.execute(tables.batch.insert(), [{"name": name} for name in names]))
    run(lambda c: c.execute(tables.audit.insert(), {"actor": "a"}))

    assert [row.name for row in ledger_db.rows(tables.batch)] == names
    (row,) = ledger_db.rows(tables.audit)
    assert abs(datetime.now(UTC).replace(tzinfo=None) - row.created_at) < timedelta(minutes=1)
    if database.sqlite:
        same = text("SELECT 'a' = 'A', 'a' = 'a '")
        assert run(lambda c: c.execute(same).one()) == (0, 0)
        return
    query = text(
        "SELECT table_name AS name, table_collation AS collation FROM "
        "information_schema.tables WHERE table_schema = DATABASE()"
    )
    collations = {
        row.name: row.collation
        for row in run(lambda c: c.execute(query).all())
        if row.name != "alembic_version"
    }
    assert collations == dict.fromkeys(tables.metadata.tables, "utf8mb4_bin")
    of_server = text("SELECT @@character_set_server, @@global.time_zone")
    assert run(lambda c: c.execute(of_server).one()) == ("latin1", "+05:00")


def test_an_empty_database_is_refused_with_the_command(opened: Callable[[], Database]) -> None:
    """An agent on an empty database names the command to run."""
    with pytest.raises(UnsafeStateError, match=r"is empty.*docllm migrate"):
        migrations.require(opened())


def test_an_older_schema_is_refused_with_the_command(
    opened: Callable[[], Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent on an older schema names both revisions and the command."""
    database = opened()
    migrations.migrate(database)
    monkeypatch.setattr(migrations, "REVISIONS", migrations.REVISIONS | {"9999": "later"})

    with pytest.raises(
        UnsafeStateError,
        match="has schema 0001, this version needs 9999; run: docllm migrate",
    ):
        migrations.require(database)


DEVELOPED = (
    "UPDATE ledger SET schema_digest='another'",
    "UPDATE ledger SET schema_digest=''",
    "ALTER TABLE ledger DROP COLUMN schema_digest",
    "UPDATE alembic_version SET version_num='0002'",
    "UPDATE alembic_version SET version_num='0013'",
)


def test_a_ledger_of_a_development_version_is_refused(opened: Callable[[], Database]) -> None:
    """Its revision may have the name of one of this version, but not its tables."""
    database = opened()
    migrations.migrate(database)
    for change in DEVELOPED:
        database.run(lambda c, change=change: c.execute(text(change)))  # type: ignore[misc]
        before = migrations.present_revision(database)

        for refused in (migrations.require, migrations.migrate):
            with pytest.raises(UnsafeStateError, match=r"by a development version .*: export its "):
                refused(database)

        assert migrations.present_revision(database) == before


def test_the_tables_are_made_as_the_code_defines_them(
    url: str, opened: Callable[[], Database]
) -> None:
    """The server describes them as it does tables made from `tables` at once."""
    database = opened()
    migrations.migrate(database)
    made = _definitions(database)

    database.run(tables.metadata.drop_all)
    database.run(tables.metadata.create_all)

    assert made == _definitions(database)
    made_names = set(_inspector(database).get_table_names())
    assert made_names == {*tables.metadata.tables, "alembic_version"}


def _definitions(database: Database) -> dict[str, list[str]]:
    """Return the lines by which the server describes each table, sorted."""
    if database.sqlite:
        query = "SELECT sql FROM sqlite_master WHERE tbl_name = '{}' AND sql IS NOT NULL"
    else:
        query = "SHOW CREATE TABLE {}"
    return {
        name: sorted(
            line.rstrip(",")
            for row in database.run(lambda c, name=name: c.execute(text(query.format(name))).all())  # type: ignore[misc]
            for line in str(row[-1]).splitlines()
        )
        for name in tables.metadata.tables
    }


@pytest.mark.parametrize("step", [1, 2, 25, 50])
def test_a_killed_migration_is_run_again(
    url: str, opened: Callable[[], Database], step: int
) -> None:
    """Killed between any two steps, it leaves a database that the next one completes."""
    program = f"""
from docllm.schemas.ledger.database import Database
from docllm.schemas.runtime import crash
from docllm.schemas.ledger.migrations import migrate
migrate(Database({url!r}, timeout_s=None))
"""
    environ = os.environ | {crash.VARIABLE: f"migrate.step_taken:{step}"}

    ended = subprocess.run([sys.executable, "-c", program], env=environ, check=False)
    database = opened()
    migrations.migrate(database)

    assert ended.returncode == -signal.SIGKILL
    migrations.require(database)
    actual = {name: _inspector(database).get_indexes(name) for name in tables.metadata.tables}
    for name, table in tables.metadata.tables.items():
        names = {str(index.name) for index in table.indexes}
        assert names <= {str(index["name"]) for index in actual[name]}, name


def test_a_newer_schema_is_refused_and_left_alone(opened: Callable[[], Database]) -> None:
    """An unknown newer revision is refused by an agent and by `migrate`, and left alone."""
    database = opened()
    migrations.migrate(database)
    database.run(lambda c: c.execute(text("UPDATE alembic_version SET version_num='8888'")))
    database.run(lambda c: c.execute(text("UPDATE ledger SET compatible_from='8888'")))

    for refused in (migrations.require, migrations.migrate):
        with pytest.raises(UnsafeStateError, match=r"8888.*update docllm"):
            refused(database)

    assert migrations.present_revision(database) == "8888"


def test_a_ledger_without_an_id_is_refused(opened: Callable[[], Database]) -> None:
    """A ledger without an id is refused with the command; records cannot be stamped."""
    database = opened()
    migrations.migrate(database)
    database.run(lambda c: c.execute(tables.ledger.delete()))

    with pytest.raises(UnsafeStateError, match="docllm migrate"):
        database.run(migrations.ledger_id)
