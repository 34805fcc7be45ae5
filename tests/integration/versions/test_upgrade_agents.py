"""Agents that run stop a `migrate` whose schema they do not know; a newer schema may serve them."""

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import Connection, inspect, select, table, text, update

from docllm.agent.ledger.leases import leasing
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger import migrations, tables
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.migrations import facts
from docllm.schemas.task.states import Status
from tests.integration.support.deployment import BATCH, Deployment, task_line
from tests.integration.support.installations import embedded_in, group_on
from tests.integration.versions import older_ledger
from tests.integration.versions.older_ledger import BEFORE_FACTS, FIRST, TASKS
from tests.servers import Kafka, MariaDB, Redis

_numbers = count(1)
GROUP = "group"
ALIVE = 21
NEWER = f"{int(migrations.own_revision()) + 1:04}"


@pytest.fixture(params=["sqlite", "mariadb", "mysql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A ledger of the version before the facts."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'ledger.db'}"
    else:
        server = request.getfixturevalue(f"{request.param}_server")
        url = str(server.create_database(f"agents{next(_numbers)}"))
    with closing(
        Database(url.replace("mysql://", "mysql+pymysql://"), timeout_s=60)
    ) as ledger_database:
        with ledger_database.engine.connect() as connection:
            older_ledger.make(connection, GROUP, BEFORE_FACTS)
        yield ledger_database


@pytest.fixture(params=["embedded", "kafka"])
def older(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """An installation whose ledger is one of the first release, with work in every state."""
    if request.param == "embedded":
        deployment: Deployment = request.getfixturevalue("embedded")
    else:
        kafka: Kafka = request.getfixturevalue("kafka_server")
        mariadb: MariaDB = request.getfixturevalue("mariadb_server")
        redis: Redis = request.getfixturevalue("redis_server")
        deployment = group_on(kafka, mariadb, redis, folder=tmp_path / "kafka")
    with opened(deployment) as ledger_database, ledger_database.engine.connect() as connection:
        older_ledger.make(connection, deployment.group, FIRST)
    yield deployment
    deployment.close()


def opened(deployment: Deployment) -> closing[Database]:
    """Open the ledger of an installation for writing."""
    if deployment.kafka:
        url = deployment.environ["DOCLLM_DATABASE_URL"].replace("mysql://", "mysql+pymysql://")
    else:
        data = deployment.folder / "docllm-data"
        data.mkdir(mode=0o700, exist_ok=True)
        url = f"sqlite:///{data / 'ledger.sqlite'}"
    return closing(Database(url, timeout_s=60))


def start_agent(connection: Connection, group: str = GROUP) -> None:
    """Register an agent as a version before the facts did."""
    row = {"id": ALIVE, "name": "host:21", "group_name": group, "version": "0.0.1"}
    connection.execute(tables.agent.insert().values(row))


def stop_agent(connection: Connection) -> None:
    me = tables.agent.c.id == ALIVE
    connection.execute(update(tables.agent).where(me).values(stopped_at=tables.agent.c.seen_at))


def set_revision(connection: Connection, revision: str, compatible_from: str | None = None) -> None:
    """Say that the schema has this revision."""
    connection.execute(text("UPDATE alembic_version SET version_num = :r"), {"r": revision})
    if compatible_from is not None:
        connection.execute(update(tables.ledger).values(compatible_from=compatible_from))


def everything(connection: Connection) -> dict[str, Any]:
    """Return each row of the older tables, with all columns."""
    names = ("alembic_version", "agent", "task", "dead_letter", "tally", "ledger", "audit")
    query = {name: select(text("*")).select_from(table(name)) for name in names}
    return {
        name: [dict(row) for row in connection.execute(statement).mappings()]
        for name, statement in query.items()
    }


def test_agents_that_do_not_know_the_schema_stop_the_upgrade(database: Database) -> None:
    """`migrate` names them and changes nothing; it goes on once they have stopped."""
    database.run(start_agent)
    before = database.run(everything)

    with pytest.raises(
        UnsafeStateError, match=r"host:21 of group group; stop them .* docllm migrate"
    ):
        migrations.migrate(database)

    assert database.run(everything) == before
    database.run(stop_agent)
    assert migrations.migrate(database) == (BEFORE_FACTS, migrations.own_revision())


def test_lost_and_silent_agents_do_not_stop_the_upgrade(database: Database) -> None:
    """An agent that sent no heartbeat for long enough to be declared lost does not count."""
    database.run(start_agent)
    me = tables.agent.c.id == ALIVE
    silent = update(tables.agent).where(me).values(seen_at=older_ledger.THEN)
    database.run(lambda c: c.execute(silent))

    assert migrations.migrate(database)[1] == migrations.own_revision()
    assert migrations._ALIVE_S >= leasing.LOST_AFTER_S


@pytest.mark.parametrize(
    ("revision", "refused"), [("", True), (BEFORE_FACTS, True), (migrations.COMPATIBLE_FROM, False)]
)
def test_agents_that_know_the_schema_run_on(
    database: Database, revision: str, *, refused: bool
) -> None:
    """The revision that an agent stored with its row decides."""
    migrations.migrate(database)
    database.run(start_agent)
    database.run(lambda c: c.execute(update(tables.agent).values(revision=revision)))
    database.run(lambda c: set_revision(c, BEFORE_FACTS))

    if refused:
        with pytest.raises(UnsafeStateError, match="host:21"):
            migrations.migrate(database)
    else:
        migrations.migrate(database)

    expected = BEFORE_FACTS if refused else migrations.own_revision()
    assert migrations.present_revision(database) == expected


def test_what_agents_of_versions_before_write_still_fits(database: Database) -> None:
    """Old statements name no newer column: each has a default, and no older one is gone."""

    def columns(connection: Connection) -> dict[tuple[str, str], bool]:
        """Return whether each column may be left out of an INSERT."""
        inspector = inspect(connection)
        return {
            (title, column["name"]): column["nullable"] or column["default"] is not None
            for title in inspector.get_table_names()
            for column in inspector.get_columns(title)
        }

    with database.engine.connect() as connection:
        older_ledger.migrate_to(connection, migrations.COMPATIBLE_FROM)
        older = columns(connection)
    migrations.migrate(database)
    now = database.run(columns)

    tables_then = {title for title, _ in older}
    added = {name for name in now.keys() - older.keys() if name[0] in tables_then}
    assert older.keys() <= now.keys()
    assert ("task_result", "release_name") in added
    assert [name for name in sorted(added) if not now[name]] == []


def test_agents_do_not_matter_when_there_is_nothing_to_do(database: Database) -> None:
    """`migrate` may be run at any time on the present schema, whoever runs."""
    migrations.migrate(database)
    database.run(start_agent)

    own = migrations.own_revision()
    assert migrations.migrate(database) == (own, own)


def test_an_agent_that_starts_meanwhile_is_named(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older agent that started during the upgrade keeps the revision from being reached."""
    sum_up = facts.sum_up

    def disturbed(connection: Connection) -> None:
        sum_up(connection)
        start_agent(connection)
        if not database.sqlite:
            connection.commit()

    monkeypatch.setattr(facts, "sum_up", disturbed)
    with pytest.raises(UnsafeStateError, match="host:21"):
        migrations.migrate(database)
    assert migrations.present_revision(database) == BEFORE_FACTS

    monkeypatch.setattr(facts, "sum_up", sum_up)
    if not database.sqlite:  # there the agent was part of the transaction that was taken back
        database.run(stop_agent)
    migrations.migrate(database)
    assert migrations.present_revision(database) == migrations.own_revision()


def test_programs_do_not_start_while_a_newer_schema_is_made(database: Database) -> None:
    """A newer `migrate` that was killed has left its mark: this version waits for its update."""
    migrations.migrate(database)
    database.run(lambda c: set_revision(c, migrations.own_revision(), NEWER))

    with pytest.raises(UnsafeStateError, match="update docllm, and run: docllm migrate"):
        migrations.require(database)


def test_the_first_releases_work_is_finished(older: Deployment) -> None:
    """After the upgrade an agent ends all open work, and old dead tasks can be replayed."""
    older.llm("--latency", "0")
    refused = older.run("producer", "status", "--group", older.group)
    assert (refused.code, "has schema 0001" in refused.err) == (4, True), refused

    assert f"0001 -> {migrations.own_revision()}" in older.producer("migrate")
    if older.kafka:
        older.producer("topics", "apply", "--partitions", "2", "--replication-factor", "1")
    older.until_done()

    open_tasks = [task for task in TASKS if task.status in {Status.PENDING, Status.RETRYING}]
    running = [task for task in TASKS if task.status is Status.PROCESSING]
    done = [task for task in TASKS if task.status is Status.SUCCEEDED]
    counts = older.ledger.counts()
    assert counts["succeeded"] == len(open_tasks) + len(running) + len(done)
    older.producer("replay", "--all", "--yes")
    older.until_done()
    assert older.ledger.counts()["dead"] == 1  # its batch is cancelled


def test_an_older_agent_stops_the_command_with_its_code(older: Deployment) -> None:
    """`migrate` ends with 4 and says which agents to stop."""
    with opened(older) as ledger_database:
        ledger_database.run(lambda c: start_agent(c, older.group))

    done = older.run("producer", "migrate", "--group", older.group)

    assert (done.code, "host:21" in done.err, "Traceback" in done.err) == (4, True, False), done


@pytest.mark.parametrize("mode", [(), ("--strict",), ("--dry-run",)])
def test_lines_with_new_fields_wait_until_older_agents_have_stopped(
    embedded: Deployment, mode: tuple[str, ...]
) -> None:
    """An older agent would give such a task up, and does not know the bounds of a batch."""
    embedded.producer("migrate")
    with opened(embedded) as ledger_database:
        ledger_database.run(lambda c: start_agent(c, embedded.group))
    route = {"id": "a", "prompt": "b", "route": "default"}
    stored = {"id": "b", "prompt": "{document}", "input": {"uri": "s3://bucket/b"}}
    lines = str(embedded.write_lines([route, stored]))

    refused = embedded.run("producer", "load", lines, "--group", embedded.group, *mode)
    bounds = (*mode, "--routes-allowed", "default", "--group", embedded.group)
    bounded = embedded.run("producer", "load", lines, *bounds)

    assert (refused.code, "route is unknown to agents of an older version" in refused.err) == (
        1,
        True,
    ), refused
    assert "input.uri is unknown to agents of an older version" in refused.err
    assert (bounded.code, "host:21" in bounded.err) == (4, True), bounded
    with opened(embedded) as ledger_database:
        ledger_database.run(stop_agent)
    embedded.producer("load", lines, *mode)


def test_a_newer_schema_that_serves_this_version_is_worked_with(deployment: Deployment) -> None:
    """Load, agent, status, check and migrate work on it, and say what it is."""
    prepared(deployment, compatible_from=migrations.COMPATIBLE_FROM)
    deployment.llm("--latency", "0")

    deployment.load(5)
    deployment.until_done()

    (batch,) = orjson.loads(deployment.producer("status", "--json"))["batches"]
    assert (batch["name"], batch["counts"]["succeeded"]) == (BATCH, 5)
    assert f"schema {NEWER} is newer than" in deployment.producer("migrate")
    assert f"revision {NEWER}, newer than" in deployment.producer("check")


def test_a_newer_schema_that_does_not_serve_it_is_refused(deployment: Deployment) -> None:
    """Every program ends with 4 and says what to do."""
    prepared(deployment, compatible_from=NEWER)
    lines = str(deployment.write_lines([{"id": "a", "prompt": "b"}]))

    for program in (["producer", "load", lines], ["producer", "status"], ["producer", "migrate"]):
        done = deployment.run(*program, "--group", deployment.group)
        assert (done.code, "update docllm" in done.err) == (4, True), done
    deployment.llm()
    agent = deployment.run("agent", "--until-done", "--group", deployment.group)
    assert (agent.code, "update docllm" in agent.err) == (4, True), agent


def prepared(deployment: Deployment, *, compatible_from: str) -> None:
    """Give the installation a schema of the future, with a column and a table more."""

    def change(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE task ADD COLUMN colour INTEGER NOT NULL DEFAULT 7"))
        connection.execute(text("CREATE TABLE later (id INTEGER NOT NULL PRIMARY KEY)"))
        set_revision(connection, NEWER, compatible_from)

    deployment.producer("migrate")
    with opened(deployment) as ledger_database:
        ledger_database.run(change)


@pytest.mark.parametrize("bus", ["embedded", "kafka"])
def test_running_agents_read_lanes_that_are_made_later(
    bus: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """An upgrade makes the lanes once no older agent runs; nothing else need be started anew."""
    deployment = upgraded(bus, tmp_path, request)
    deployment.llm("--latency", "0")
    deployment.agent()
    deployment.load(3)
    deployment.until_settled(3)

    with opened(deployment) as ledger_database:
        ledger_database.run(stop_agent)
    assert "tasks.urgent" in deployment.producer("topics", "apply")
    lines = [task_line(number) for number in range(100, 120)]
    path = str(deployment.write_lines(lines, "hurry"))
    deployment.producer("load", path, "--priority", "9")

    assert deployment.ledger.carriers("pending").keys() <= {"tasks.urgent"}
    deployment.until_settled(23)
    assert deployment.ledger.counts()["succeeded"] == 23


def upgraded(bus: str, folder: Path, request: pytest.FixtureRequest) -> Deployment:
    """Return an installation without lanes, since an agent of an older version runs in it."""
    if bus == "embedded":
        deployment = embedded_in(folder / bus)
    else:
        names = ("kafka_server", "mariadb_server", "redis_server")
        deployment = group_on(*map(request.getfixturevalue, names), folder=folder / bus)
    request.addfinalizer(deployment.close)
    deployment.producer("migrate")
    with opened(deployment) as ledger_database:
        ledger_database.run(lambda c: start_agent(c, deployment.group))
    assert "not made while agents of an older version run" in deployment.producer(
        "topics", "apply", "--partitions", "4"
    )
    return deployment
