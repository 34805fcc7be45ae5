"""A right that the database's user lacks is named, with exit code 3.

No outcome is lost because of it.
"""

import secrets
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pymysql
import pytest
from sqlalchemy import delete, make_url

from docllm.agent.ledger.sql_ledger import Executors, SqlLedger
from docllm.producer.ledger import rights
from docllm.schemas.errors import DeniedError
from docllm.schemas.ledger import migrations, tables
from docllm.schemas.ledger.database import Database
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.task.states import Status
from tests.support.ledger_database import (
    GROUP,
    LONGEST,
    SUCCEEDED,
    LedgerDatabase,
    driven,
    settlement,
)

RUN = "SELECT, INSERT, UPDATE, DELETE"
MIGRATE = f"{RUN}, CREATE, ALTER, INDEX"


@dataclass(frozen=True, slots=True)
class Site:
    """An empty database, its administrator, and a user with few rights."""

    url: str
    user: str

    @property
    def name(self) -> str:
        return str(make_url(self.url).database)

    def sql(self, *statements: str) -> None:
        """Run these statements as the administrator; `{db}` and `{user}` stand for the names."""
        url = make_url(self.url)
        server: dict[str, Any] = {
            "host": str(url.host),
            "port": int(url.port or 0),
            "user": str(url.username),
        }
        with closing(pymysql.connect(**server, autocommit=True)) as connection:
            for statement in statements:
                named = statement.format(db=f"`{self.name}`", user=f"'{self.user}'@'127.0.0.1'")
                connection.query(named)

    def opened(self) -> Database:
        """Return the database as the user sees it, on connections of its own."""
        return Database(driven(self.url.replace("docllm@", f"{self.user}:pw@")))


@pytest.fixture(params=["mariadb", "mysql"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    name = f"rights_{secrets.token_hex(4)}"
    server = request.getfixturevalue(f"{request.param}_server")
    site = Site(server.create_database(name), name)
    site.sql("CREATE USER {user} IDENTIFIED BY 'pw'", "GRANT SELECT ON {db}.* TO {user}")
    yield site
    site.sql("DROP USER {user}", "DROP DATABASE {db}")


@pytest.fixture
def migrated_site(site: Site) -> Site:
    with closing(Database(driven(site.url))) as database:
        migrations.migrate(database)
    return site


def test_the_documented_rights_are_enough_to_migrate(site: Site) -> None:
    """Without one of the rights `migrate` names it; with all of them it continues.

    ALTER is for later migrations: the first one only makes tables and indexes.
    """
    granted = "SELECT"
    for right in ("CREATE", "INDEX"):
        site.sql(f"GRANT {granted} ON {{db}}.* TO {{user}}")
        with (
            closing(site.opened()) as database,
            pytest.raises(DeniedError, match=f"{right} command denied"),
        ):
            migrations.migrate(database)
        granted = f"{RUN}, {right}"
    site.sql(f"GRANT {MIGRATE} ON {{db}}.* TO {{user}}")

    with closing(site.opened()) as database:
        assert migrations.migrate(database)[1] == migrations.own_revision()


def test_the_documented_rights_are_enough_to_run(migrated_site: Site) -> None:
    """`check` tries on each table what the programs do, and finds no missing right."""
    migrated_site.sql(f"GRANT {RUN} ON {{db}}.* TO {{user}}")

    with closing(migrated_site.opened()) as database:
        assert database.run(rights.missing) == []
        ledger_db = LedgerDatabase(database)
        (task_id,) = ledger_db.load("a")
        ledger_db.settled(task_id, SUCCEEDED)
        assert ledger_db.status(task_id) is Status.SUCCEEDED


def test_each_missing_right_is_named_with_its_table(migrated_site: Site) -> None:
    """A user who may only read lacks every other right on each table.

    A user who may do everything but delete from one table lacks only that right.
    """
    with closing(migrated_site.opened()) as database:
        lacking = database.run(rights.missing)
    wanted = {f"{right} on task" for right in ("INSERT", "UPDATE", "DELETE")}
    assert wanted <= set(lacking)

    names = [table.name for table in tables.metadata.sorted_tables]
    grants = [f"GRANT {RUN} ON {{db}}.{name} TO {{user}}" for name in names if name != "tally"]
    migrated_site.sql(*grants, "GRANT SELECT, INSERT, UPDATE ON {db}.tally TO {user}")
    with closing(migrated_site.opened()) as database:
        assert database.run(rights.missing) == ["DELETE on tally"]


def test_a_right_that_is_revoked_in_mid_run_is_named(migrated_site: Site) -> None:
    """The server checks the right at each statement, so the next statement raises the error."""
    grants = [f"GRANT {RUN} ON {{db}}.{table} TO {{user}}" for table in tables.metadata.tables]
    migrated_site.sql("REVOKE SELECT ON {db}.* FROM {user}", *grants)
    with closing(migrated_site.opened()) as database:
        database.run(lambda c: c.execute(delete(tables.tally)))
        migrated_site.sql("REVOKE DELETE ON {db}.tally FROM {user}")

        with pytest.raises(DeniedError, match=r"DELETE command denied to user .*tally") as raised:
            database.run(lambda c: c.execute(delete(tables.tally)))

    assert raised.value.exit_code == 3
    assert f"GRANT DELETE ON `{migrated_site.name}`.*" in str(raised.value)


async def test_no_outcome_is_given_up_for_a_missing_right(migrated_site: Site) -> None:
    """An outcome that may not be written is not the task's fault, so the task waits as it is."""
    migrated_site.sql(f"GRANT {RUN} ON {{db}}.* TO {{user}}")
    with closing(Database(driven(migrated_site.url))) as admin:
        ledger_db = LedgerDatabase(admin)
        (task_id,) = ledger_db.load("a")
        owner = ledger_db.agent().next_owner()
        row = ledger_db.claimed(task_id, owner)
        names = [name for name in tables.metadata.tables if name != "task_result"]
        grants = [f"GRANT {RUN} ON {{db}}.{name} TO {{user}}" for name in names]
        migrated_site.sql("REVOKE INSERT, UPDATE, DELETE ON {db}.* FROM {user}", *grants)
        with closing(migrated_site.opened()) as database:
            executor = InlineExecutor()
            ledger = SqlLedger(
                database=database,
                group=GROUP,
                clock=SystemClock(),
                executors=Executors(claim=executor, settle=executor, background=executor),
                longest_tier=LONGEST,
            )
            with pytest.raises(DeniedError, match="task_result"):
                await ledger.settle([settlement(row, owner, SUCCEEDED)])

        assert ledger_db.status(task_id) is Status.PROCESSING
        assert ledger_db.count(tables.dead_letter) == 0
