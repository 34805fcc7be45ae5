"""A server whose settings forbid what docllm writes: named at the start, waited for later."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pymysql
import pytest
from sqlalchemy import Connection, insert, select

from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger import migrations, server_settings, tables
from docllm.schemas.ledger.database import Database
from docllm.schemas.runtime.outage import Outage
from tests.servers import MariaDB
from tests.support.clock import HandClock
from tests.support.ledger_database import LedgerDatabase


class Logging(MariaDB):
    """A MariaDB with a binary log of statements."""

    def command(self) -> Sequence[str]:
        """Return the server's command line."""
        usual = [option for option in super().command() if option != "--skip-log-bin"]
        return [*usual, "--log-bin=log", "--server-id=1", "--binlog-format=STATEMENT"]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with Logging(folder=tmp_path / "mariadb") as server:
        yield server.url.replace("mysql://", "mysql+pymysql://")


def set_format(url: str, name: str) -> None:
    port = int(url.rpartition(":")[2].partition("/")[0])
    with (
        closing(pymysql.connect(host="127.0.0.1", port=port, user="docllm")) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(f"SET GLOBAL binlog_format={name}")


def add_batch(connection: Connection) -> None:
    connection.execute(insert(tables.batch), {"name": "a"})


def test_a_log_of_statements_is_named_and_waited_for(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`migrate` ends with 4; a program that runs waits, and goes on once the format is set."""
    clock = HandClock()
    outage = Outage(name="the database", clock=clock, patience_s=0)
    database = Database(url, connections=1, outage=outage)
    with pytest.raises(UnsafeStateError, match="set binlog_format=ROW or MIXED"):
        migrations.migrate(database)
    assert migrations.present_revision(database) is None
    set_format(url, "ROW")
    database.close()
    database = Database(url, connections=1, outage=outage)
    migrations.migrate(database)
    database.close()
    set_format(url, "STATEMENT")
    caplog.clear()

    database = Database(url, connections=1, outage=outage, pause=lambda _: set_format(url, "MIXED"))
    database.run(add_batch)

    assert database.run(lambda c: c.execute(select(tables.batch.c.name)).scalar_one()) == "a"
    database.close()
    assert "its binlog_format is STATEMENT" in caplog.messages[0]


@pytest.mark.parametrize("migrated", ["mariadb", "mysql"], indirect=True)
def test_the_settings_of_a_usual_server_refuse_nothing(ledger_db: LedgerDatabase) -> None:
    """Both servers of the tests are new enough and write."""
    assert ledger_db.run(server_settings.refusing) == ""


@pytest.mark.parametrize("migrated", ["mariadb", "mysql"], indirect=True)
def test_a_transaction_that_may_only_read_is_waited_for(
    ledger_db: LedgerDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a replica behind a name; the line says which setting it is."""
    left = threading.Event()

    def pause(_: float) -> None:
        left.set()

    def work(connection: Connection) -> None:
        if not left.is_set():
            connection.exec_driver_sql("COMMIT")
            connection.exec_driver_sql("START TRANSACTION READ ONLY")
        add_batch(connection)

    database = Database(
        ledger_db.database.engine.url.render_as_string(hide_password=False),
        pause=pause,
        outage=Outage(name="the database", clock=HandClock(), patience_s=0),
    )
    try:
        database.run(work)
    finally:
        database.close()

    assert [row.name for row in ledger_db.rows(tables.batch)] == ["a"]
    assert "it is read-only, as a replica is; name the primary" in caplog.messages[0]
