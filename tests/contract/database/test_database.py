"""Transactions on a real server run again after a conflict or a lost connection.

They also run again after a failover, and are never half done.
"""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pymysql
import pytest
from sqlalchemy import Connection, insert, select, text, update
from sqlalchemy.exc import IntegrityError, OperationalError

from docllm.producer.app import opened_ledger
from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.ledger import migrations, tables
from docllm.schemas.ledger.database import Database, Stopped
from docllm.schemas.ledger.errors import code
from docllm.schemas.settings.config import Config, KafkaConfig, Secret
from tests.support.ledger_database import LedgerDatabase

SERVERS = pytest.mark.parametrize("migrated", ["mariadb", "mysql"], indirect=True)


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def database(ledger_db: LedgerDatabase, pauses: list[float]) -> Iterator[Database]:
    """A database of its own, whose pauses are recorded and not waited for."""
    database = Database(
        ledger_db.database.engine.url.render_as_string(hide_password=False),
        timeout_s=10,
        pause=pauses.append,
    )
    yield database
    database.close()


def add_batches(ledger_db: LedgerDatabase, *names: str) -> None:
    ledger_db.run(lambda c: c.execute(insert(tables.batch), [{"name": name} for name in names]))


def note(connection: Connection, name: str, value: str) -> None:
    connection.execute(update(tables.batch).where(tables.batch.c.name == name).values(note=value))


def notes(ledger_db: LedgerDatabase) -> dict[str, str]:
    return {row.name: row.note for row in ledger_db.rows(tables.batch)}


SLOW = "SELECT COUNT(*) FROM " + ", ".join(  # noqa: S608
    f"information_schema.collations {name}" for name in "abcd"
)

RUNNING = (
    "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT COUNT(*) "
    "FROM information_schema.coll%'"
)


def ends_on_the_server(database: Database) -> bool:
    """Return whether the slow statement leaves the list of running ones within ten seconds.

    It would take hours. The server sends its error first and takes it off the list a moment later.
    """
    for _ in range(100):
        if database.run_singly(lambda c: c.execute(text(RUNNING)).scalar()) == 0:
            return True
        time.sleep(0.1)
    return False


def slowly(connection: Connection) -> object:
    return connection.execute(text(SLOW)).scalar()


@SERVERS
async def test_a_query_of_a_screen_that_takes_too_long_is_reported_once(
    ledger_db: LedgerDatabase,
) -> None:
    """The server ends the query, and it is not asked again.

    Neither a person nor the server waits for an answer that nobody reads.
    """
    url = ledger_db.database.engine.url.render_as_string(hide_password=False)
    config = Config(kafka=KafkaConfig("not asked"), database_url=Secret(url))

    async with asyncio.timeout(60):
        with pytest.raises(UnreachableError, match="in 1 s; select less"):
            async with opened_ledger(config, reads_s=1) as parts:
                await parts.transactions.read(slowly)

    assert ends_on_the_server(ledger_db.database)


def limits(database: Database) -> dict[str, float]:
    """Return what a connection has set for the time that statements and table locks may take."""
    names = "('max_statement_time', 'max_execution_time', 'lock_wait_timeout')"
    query = text(f"SHOW SESSION VARIABLES WHERE Variable_name IN {names}")
    return {row[0]: float(row[1]) for row in database.run_singly(lambda c: c.execute(query).all())}


@SERVERS
def test_an_abandoned_statement_ends_on_the_server(
    ledger_db: LedgerDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """The server ends the statement before its client gives up.

    A log line reports it, and the statement is tried again later.
    """
    url = ledger_db.database.engine.url.render_as_string(hide_password=False)
    pauses: list[float] = []
    impatient = Database(url, timeout_s=5, pause=pauses.append)
    runs: list[int] = []

    def work(connection: Connection) -> object:
        runs.append(1)
        return slowly(connection) if len(runs) == 1 else "done"

    assert impatient.run_singly(work) == "done"
    impatient.close()

    (message,) = caplog.messages
    assert "ended a statement that took too long" in message
    assert max(pauses) > 1, "a statement that is hopeless must leave the server some rest"
    assert ends_on_the_server(ledger_db.database)


@SERVERS
def test_statements_of_agents_are_limited_below_the_patience_of_their_client(
    ledger_db: LedgerDatabase,
) -> None:
    """A migration's statements have no time limit, because an index may take any time.

    A migration waits only briefly for table locks.
    """
    url = ledger_db.database.engine.url.render_as_string(hide_password=False)
    agent, migration = Database(url), Database(url, timeout_s=None)

    limited, unlimited = limits(agent), limits(migration)
    agent.close()
    migration.close()

    assert limited.get("max_statement_time", limited.get("max_execution_time", 0) / 1000) == 24
    assert unlimited.get("max_statement_time", unlimited.get("max_execution_time")) == 0
    assert unlimited["lock_wait_timeout"] == 60 < limited["lock_wait_timeout"]


@SERVERS
def test_a_migration_does_not_wait_for_long_for_a_table_in_use(
    ledger_db: LedgerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a migration waits, nobody can use the table.

    So it soon gives up and says which programs to stop.
    """
    monkeypatch.setattr("docllm.schemas.ledger.mysql_engine._TABLE_LOCK_S", 1)
    migration = Database(
        ledger_db.database.engine.url.render_as_string(hide_password=False), timeout_s=None
    )
    with (
        closing(ledger_db.database.engine.raw_connection()) as holder,
        closing(holder.cursor()) as cursor,
    ):
        cursor.execute("LOCK TABLES ledger WRITE, alembic_version READ")
        with pytest.raises(UnsafeStateError, match="stop agents and loads"):
            migrations.migrate(migration)
        cursor.execute("UNLOCK TABLES")
    migration.close()


@SERVERS
def test_a_deadlock_runs_the_whole_transaction_again(
    ledger_db: LedgerDatabase, database: Database, pauses: list[float]
) -> None:
    """Of two transactions that wait for each other, the server undoes one.

    It runs again after a pause, and both are done.
    """
    add_batches(ledger_db, "a", "b")
    met = threading.Barrier(2, timeout=20)
    runs: list[str] = []

    def cross(connection: Connection, first: str, second: str) -> None:
        runs.append(first)
        note(connection, first, f"by {first}")
        if len(runs) <= 2:
            met.wait()
        note(connection, second, f"by {first}")

    other = threading.Thread(target=lambda: database.run(lambda c: cross(c, "b", "a")))
    other.start()
    database.run(lambda c: cross(c, "a", "b"))
    other.join(20)

    assert len(runs) == 3
    assert len(pauses) == 1
    assert len(set(notes(ledger_db).values())) == 1


@SERVERS
def test_a_lock_wait_that_ended_keeps_no_half(
    ledger_db: LedgerDatabase, database: Database, pauses: list[float]
) -> None:
    """The server undoes only the statement (1205).

    The transaction's earlier writes are undone before it runs again.
    """
    add_batches(ledger_db, "free", "locked")
    tried = threading.Event()
    runs: list[int] = []

    def work(connection: Connection) -> str:
        runs.append(len(runs))
        connection.execute(text("SET SESSION innodb_lock_wait_timeout=1"))
        note(connection, "free", f"run {len(runs)}")
        connection.execute(insert(tables.batch), {"name": f"made by run {len(runs)}"})
        tried.set()
        note(connection, "locked", "mine")
        return "done"

    with closing(ledger_db.database.engine.raw_connection()) as holder:
        with closing(holder.cursor()) as cursor:
            cursor.execute("UPDATE batch SET note='held' WHERE name='locked'")
        pauses.clear()
        with pytest.raises(OperationalError) as raised:
            database.run(work, tries=1)
        assert code(raised.value) == 1205
        assert notes(ledger_db)["free"] == ""
        holder.rollback()
    assert database.run(work) == "done"

    assert notes(ledger_db) == {"free": "run 2", "locked": "mine", "made by run 2": ""}


@SERVERS
def test_a_connection_that_is_cut_runs_the_transaction_again(
    ledger_db: LedgerDatabase, database: Database
) -> None:
    """A connection that the server ends in mid-transaction loses its work; the rerun does it."""
    add_batches(ledger_db, "a")
    runs: list[int] = []

    def work(connection: Connection) -> None:
        runs.append(1)
        connection.execute(insert(tables.batch), {"name": "b"})
        if len(runs) == 1:
            number = connection.execute(text("SELECT CONNECTION_ID()")).scalar_one()
            ledger_db.run(lambda c: c.exec_driver_sql(f"KILL {number}"))
        note(connection, "a", "written")

    database.run(work)

    assert len(runs) == 2
    assert notes(ledger_db) == {"a": "written", "b": ""}


@SERVERS
def test_a_transaction_runs_again_if_the_answer_to_its_commit_is_lost(
    ledger_db: LedgerDatabase, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction had committed, so its function runs a second time.

    This is why each function must be safe to run twice.
    """
    runs: list[int] = []
    real = pymysql.connections.Connection.commit

    def lost(self: pymysql.connections.Connection) -> None:
        real(self)
        if len(runs) == 1:
            raise pymysql.err.OperationalError(2013, "Lost connection to server during query")

    monkeypatch.setattr(pymysql.connections.Connection, "commit", lost)

    def work(connection: Connection) -> int:
        runs.append(1)
        batch_id = connection.execute(select(tables.batch.c.id)).scalar()
        if batch_id is None:
            connection.execute(insert(tables.batch), {"name": "a"})
        return len(runs)

    assert database.run(work) == 2
    assert list(notes(ledger_db)) == ["a"]


# The statements that make a server refuse the test's user, who may write to a merely `read_only`
# server: 1792 on MariaDB, 1290 on MySQL.
FAILOVER = [
    ("mariadb", "SET GLOBAL tx_read_only=1", "SET GLOBAL tx_read_only=0"),
    ("mysql", "SET GLOBAL super_read_only=1", "SET GLOBAL read_only=0"),
]


@pytest.mark.parametrize(("migrated", "on", "off"), FAILOVER, indirect=["migrated"])
def test_a_read_only_server_is_left_for_a_new_connection(
    ledger_db: LedgerDatabase, database: Database, on: str, off: str
) -> None:
    """After a failover writes are refused.

    The connection is dropped, and the transaction succeeds on a later connection.
    """
    connections = []

    def work(connection: Connection) -> None:
        connections.append(connection.execute(text("SELECT CONNECTION_ID()")).scalar_one())
        if len(connections) == 3:
            ledger_db.run(lambda c: c.exec_driver_sql(off))
        connection.execute(insert(tables.batch), {"name": "a"})

    ledger_db.run(lambda c: c.exec_driver_sql(on))
    try:
        database.run(work)
    finally:
        ledger_db.run(lambda c: c.exec_driver_sql(off))

    assert len(connections) >= 3
    assert len(set(connections)) == len(connections)
    assert list(notes(ledger_db)) == ["a"]


def test_an_error_that_cannot_pass_is_raised_at_once(
    ledger_db: LedgerDatabase, database: Database, pauses: list[float]
) -> None:
    """A duplicate is a program error: it is not retried, and nothing of it stays."""
    add_batches(ledger_db, "a")

    def work(connection: Connection) -> None:
        connection.execute(insert(tables.batch), {"name": "b"})
        connection.execute(insert(tables.batch), {"name": "a"})

    with pytest.raises(IntegrityError):
        database.run(work)

    assert pauses == []
    assert list(notes(ledger_db)) == ["a"]


def test_an_error_of_the_program_undoes_its_transaction(
    ledger_db: LedgerDatabase, database: Database
) -> None:
    """Nothing is committed, whatever is raised inside."""

    def work(connection: Connection) -> None:
        connection.execute(insert(tables.batch), {"name": "a"})
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        database.run(work)

    assert notes(ledger_db) == {}


@pytest.mark.parametrize("migrated", ["sqlite"], indirect=True)
def test_a_locked_file_is_waited_for(
    ledger_db: LedgerDatabase, database: Database, pauses: list[float]
) -> None:
    """Another writer makes a transaction wait and run again, not fail."""
    database.run(lambda c: c.exec_driver_sql("PRAGMA busy_timeout=1"))
    holder = ledger_db.database.engine.connect()
    holder.begin()
    threading.Timer(0.2, holder.close).start()

    def work(connection: Connection) -> None:
        connection.execute(insert(tables.batch), {"name": "a"})

    database.run(work)

    assert list(notes(ledger_db)) == ["a"]


@pytest.mark.parametrize("migrated", ["sqlite"], indirect=True)
def test_readers_do_not_wait_for_a_writer(
    ledger_db: LedgerDatabase, database: Database, pauses: list[float]
) -> None:
    """While somebody writes, questions are answered from committed data."""
    add_batches(ledger_db, "a")
    with ledger_db.database.engine.begin() as writer:
        writer.execute(insert(tables.batch), {"name": "b"})
        seen = database.run_singly(lambda c: c.execute(select(tables.batch.c.name)).scalars().all())

    assert seen == ["a"]
    assert pauses == []


@SERVERS
def test_connections_are_set_up_for_the_ledger(
    ledger_db: LedgerDatabase, database: Database
) -> None:
    """Every connection of both kinds has UTC, READ COMMITTED and short lock waits."""
    query = text(
        "SELECT @@session.time_zone, @@session.innodb_lock_wait_timeout, @@session.wait_timeout"
    )
    for way in (database.run, database.run_singly):
        assert tuple(way(lambda c: c.execute(query).one())) == ("+00:00", 5, 30)
        assert way(lambda c: c.get_isolation_level()) == "READ COMMITTED"


@SERVERS
def test_statements_of_a_claim_are_committed_one_by_one(
    ledger_db: LedgerDatabase, database: Database
) -> None:
    """A row that `auto` has written is visible to others before `auto` ends."""
    seen: list[dict[str, str]] = []

    def work(connection: Connection) -> None:
        connection.execute(insert(tables.batch), {"name": "a"})
        seen.append(notes(ledger_db))

    database.run_singly(work)

    assert seen == [{"a": ""}]


def test_no_error_shows_a_parameter_or_a_password(
    ledger_db: LedgerDatabase, database: Database
) -> None:
    """No message contains a body or a secret."""
    add_batches(ledger_db, "a secret name")

    def work(connection: Connection) -> None:
        connection.execute(
            insert(tables.batch), {"name": "a secret name", "note": "a private text"}
        )

    with pytest.raises(IntegrityError) as raised:
        database.run(work)

    assert "a private text" not in str(raised.value)


def test_a_program_that_leaves_stops_trying(database: Database) -> None:
    """Once the database is closed, no transaction is retried.

    Stopped says that the transaction may or may not have committed.
    """

    def work(_: Connection) -> None:
        database.stopping.set()
        raise OperationalError("a statement", {}, Exception(1213, "Deadlock found"))

    with pytest.raises(Stopped):
        database.run(work)
