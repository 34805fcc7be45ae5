"""The next version expands the schema beside agents of this one, and a later one contracts it.

The next two versions are made up: 0002 adds a column, and 0003 takes it away again.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import orjson
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from docllm.agent.ledger.leases import leasing
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger import migrations
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.migrations import upgrade, versions
from tests.integration.support.deployment import Deployment, task_line

_numbers = count(1)
EXPAND, CONTRACT = "0002", "0003"
STEPS = {
    EXPAND: 'add_column("task", Column("colour", Integer, server_default="7", nullable=False))',
    CONTRACT: 'op.execute("ALTER TABLE task DROP COLUMN colour")',
}
FILE = """
from alembic import op
from sqlalchemy import Column, Integer
from docllm.schemas.ledger.migrations.steps import add_column
revision = "{revision}"
down_revision = "{before:04}"
def upgrade():
    {step}
"""


@pytest.fixture
def become(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes this process, not its children, a version whose newest revision is the given one."""
    own = dict(migrations.REVISIONS)

    def at(newest: str) -> None:
        folder = tmp_path / f"version{next(_numbers)}" / "versions"
        shutil.copytree(Path(versions.__file__).parent, folder)
        revisions = dict(own)
        for revision, step in STEPS.items():
            if revision <= newest:
                file = FILE.format(revision=revision, before=int(revision) - 1, step=step)
                (folder / f"{revision}_made_up.py").write_text(file)
                revisions[revision] = f"tables of {revision}"
        monkeypatch.setattr(upgrade, "scripts", lambda: ScriptDirectory(str(folder.parent)))
        monkeypatch.setattr(migrations, "REVISIONS", revisions)
        oldest = EXPAND if newest == CONTRACT else "0001"
        monkeypatch.setattr(migrations, "COMPATIBLE_FROM", oldest)

    return at


@pytest.fixture(params=["sqlite", "mariadb", "mysql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A ledger of this version."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'ledger.db'}"
    else:
        server = request.getfixturevalue(f"{request.param}_server")
        url = str(server.create_database(f"upgrade{next(_numbers)}"))
    with closing(
        Database(url.replace("mysql://", "mysql+pymysql://"), timeout_s=60)
    ) as ledger_database:
        migrations.migrate(ledger_database)
        yield ledger_database


def opened(deployment: Deployment) -> closing[Database]:
    """Open the ledger of an installation for writing."""
    if deployment.kafka:
        url = deployment.environ["DOCLLM_DATABASE_URL"].replace("mysql://", "mysql+pymysql://")
    else:
        url = f"sqlite:///{deployment.folder / 'docllm-data' / 'ledger.sqlite'}"
    return closing(Database(url, timeout_s=60))


def registered(connection: Connection, name: str, revision: str) -> int:
    return leasing.register(connection, name, "group", "1", revision=revision)


def columns_of_task(database: Database) -> set[str]:
    inspector = inspect(database.engine)
    return {column["name"] for column in inspector.get_columns("task")}


def test_agents_of_the_version_before_work_on_while_a_column_is_added(
    deployment: Deployment, become: Callable[[str], None]
) -> None:
    """They finish their tasks, new programs of their version start, and say what the schema is."""
    deployment.llm("--latency", "0.05")
    deployment.load(40)
    agent = deployment.agent("--slots", "2")
    deployment.until_settled(5)

    become(EXPAND)
    with opened(deployment) as ledger_database:
        assert migrations.migrate(ledger_database) == ("0001", EXPAND)
        assert "colour" in columns_of_task(ledger_database)
    lines = deployment.write_lines([task_line(number) for number in range(100, 110)], "more")
    deployment.producer("load", str(lines))
    deployment.until_settled(50)

    assert agent.running
    assert deployment.ledger.counts()["succeeded"] == 50
    assert f"schema {EXPAND} is newer than" in deployment.producer("migrate")
    assert f"revision {EXPAND}, newer than" in deployment.producer("check")
    status = orjson.loads(deployment.producer("status", "--json"))
    assert [one["state"] for one in status["agents"]] == ["alive"]


def test_a_column_goes_once_no_agent_reads_it(
    database: Database, become: Callable[[str], None]
) -> None:
    """`migrate` names the agents that do; afterwards no program of their version starts."""
    become(EXPAND)
    migrations.migrate(database)
    old = database.run(lambda c: registered(c, "old", "0001"))
    database.run(lambda c: registered(c, "new", EXPAND))

    become(CONTRACT)
    with pytest.raises(
        UnsafeStateError, match=r"schema: old of group group; stop them .* docllm migrate"
    ):
        migrations.migrate(database)
    assert "colour" in columns_of_task(database)
    database.run(lambda c: leasing.stop(c, old))

    assert migrations.migrate(database) == (EXPAND, CONTRACT)
    assert "colour" not in columns_of_task(database)
    become(EXPAND)
    migrations.require(database)
    become("0001")
    for refused in (migrations.require, migrations.migrate):
        with pytest.raises(UnsafeStateError, match=f"has schema {CONTRACT}.*update docllm"):
            refused(database)


def test_an_agent_that_starts_meanwhile_keeps_the_revision_from_being_reached(
    database: Database, become: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such agent may start any more, but one that had read the schema before may register."""
    become(EXPAND)
    migrations.migrate(database)
    refuse = migrations._refuse_older_programs

    def disturbed(connection: Connection) -> None:
        registered(connection, "late", "0001")
        refuse(connection)

    become(CONTRACT)
    monkeypatch.setattr(migrations, "_refuse_older_programs", disturbed)
    with pytest.raises(UnsafeStateError, match="late of group group"):
        migrations.migrate(database)
    assert migrations.present_revision(database) == EXPAND
    monkeypatch.setattr(migrations, "_refuse_older_programs", refuse)
    database.run(lambda c: c.execute(text("UPDATE agent SET stopped_at = seen_at")))

    if not database.sqlite:  # DDL has committed the step by itself
        monkeypatch.setitem(STEPS, CONTRACT, "pass")
    become(CONTRACT)

    assert migrations.migrate(database) == (EXPAND, CONTRACT)


def test_lost_and_silent_agents_do_not_stop_the_upgrade(
    database: Database, become: Callable[[str], None]
) -> None:
    """An agent that sent no heartbeat for long enough to be declared lost does not count."""
    become(EXPAND)
    migrations.migrate(database)
    silent = database.run(lambda c: registered(c, "old", "0001"))
    database.run(lambda c: c.execute(text("UPDATE agent SET seen_at = '2001-01-01 00:00:00'")))

    become(CONTRACT)

    assert migrations.migrate(database) == (EXPAND, CONTRACT)
    assert silent in database.run(lambda c: leasing.gone(c, "group"))
    assert migrations._ALIVE_S >= leasing.LOST_AFTER_S


def test_agents_do_not_matter_when_there_is_nothing_to_do(database: Database) -> None:
    """`migrate` may be run at any time on the present schema, whoever runs."""
    database.run(lambda c: registered(c, "old", ""))

    assert migrations.migrate(database) == ("0001", "0001")


def test_no_program_starts_while_a_schema_is_made_that_it_does_not_know(
    database: Database,
) -> None:
    """A newer `migrate` that was killed has left its mark: this version waits for its update."""
    database.run(lambda c: c.execute(text("UPDATE ledger SET compatible_from = '0002'")))

    with pytest.raises(UnsafeStateError, match="update docllm, and run: docllm migrate"):
        migrations.require(database)


def test_every_program_refuses_a_ledger_of_a_development_version(embedded: Deployment) -> None:
    """Load, status, check, migrate and agent end with 4, and say what to do."""
    embedded.producer("migrate")
    with opened(embedded) as ledger_database:
        ledger_database.run(
            lambda c: c.execute(text("ALTER TABLE ledger DROP COLUMN schema_digest"))
        )
    embedded.llm()
    lines = str(embedded.write_lines([{"id": "a", "prompt": "b"}]))

    for program in (
        ("producer", "load", lines),
        ("producer", "status"),
        ("producer", "check"),
        ("producer", "migrate"),
        ("agent", "--until-done"),
    ):
        done = embedded.run(*program, "--group", embedded.group)
        assert (done.code, "made by a development version" in done.err + done.out) == (4, True), (
            done
        )
