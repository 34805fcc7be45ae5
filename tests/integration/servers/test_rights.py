"""Without a right in the database every program ends with 3 and names it, without a traceback."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pymysql
import pytest
from sqlalchemy import make_url

from docllm.schemas.ledger.tables import metadata
from tests.integration.support.deployment import BATCH, Deployment, task_line
from tests.integration.support.installations import group_on
from tests.integration.support.programs import until
from tests.servers import Kafka, Redis

RUN = "SELECT, INSERT, UPDATE, DELETE"
READER = "docllm_read"
READER_ACCOUNT = f"'{READER}'@'127.0.0.1'"
KAFKA_PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "kafka.md"
# All that the page names as reading, with what it needs to run.
READ = (
    "status",
    f"export --batch {BATCH}",
    "dead list",
    f"show --batch {BATCH} t0",
    "guard list",
    "replay --list",
    "replay --all --dry-run",
    "topics check",
    "load tasks.jsonl --dry-run",
    "purge --older-than 1d --dry-run",
    "erase --tenant default --dry-run",
    "dead trim --dry-run",
)
Sql = Callable[[str], None]


@pytest.fixture(params=["mariadb", "mysql"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, kafka_server: Kafka, redis_server: Redis
) -> Iterator[Deployment]:
    """A group on Kafka with an empty ledger, and a user of that who may do what is documented."""
    server = request.getfixturevalue(f"{request.param}_server")
    deployment = group_on(kafka_server, server, redis_server, folder=tmp_path / "site")
    url = deployment.environ["DOCLLM_DATABASE_URL"]
    deployment.environ["DOCLLM_DATABASE_URL"] = url.replace("docllm@", f"{deployment.group}:pw@")
    yield deployment
    deployment.close()


@pytest.fixture
def sql(site: Deployment) -> Iterator[Sql]:
    """Return how the administrator runs a statement about the database {db} and the user {user}."""
    url = make_url(site.environ["DOCLLM_DATABASE_URL"])
    server: dict[str, Any] = {"host": str(url.host), "port": int(url.port or 0), "user": "docllm"}

    def run(statement: str) -> None:
        named = statement.format(db=f"`{site.group}`", user=f"'{site.group}'@'127.0.0.1'")
        with closing(pymysql.connect(**server, autocommit=True)) as connection:
            connection.query(named)

    run("CREATE USER {user} IDENTIFIED BY 'pw'")
    run(f"GRANT {RUN}, CREATE, ALTER, INDEX ON {{db}}.* TO {{user}}")
    yield run
    run("DROP USER {user}")


def reading_user() -> list[str]:
    """Return the statements by which the page about Kafka makes a user that only reads."""
    lines = [line for line in KAFKA_PAGE.read_text().splitlines() if f"'{READER}'" in line]
    assert len(lines) == 2
    return [
        line.removesuffix(";")
        .replace("docllm.*", "{db}.*")
        .replace(f"'{READER}'@'%'", READER_ACCOUNT)
        .replace("'...'", "'pw'")
        for line in lines
    ]


def refused(site: Deployment, right: str, *arguments: str) -> None:
    """Check that a program ends with 3, names the right, and shows no traceback."""
    done = site.run(*arguments, "--group", site.group)

    output = done.out + done.err
    assert (done.code, right in output, "Traceback" in output) == (3, True, False), output


def test_each_program_names_the_right_that_its_user_lacks(site: Deployment, sql: Sql) -> None:
    """With the rights to run no table can be made; with those of screens nothing can be written."""
    sql("REVOKE CREATE ON {db}.* FROM {user}")
    refused(site, "CREATE command denied", "producer", "migrate")
    sql("GRANT CREATE ON {db}.* TO {user}")
    site.producer("migrate")
    sql("REVOKE CREATE, ALTER, INDEX ON {db}.* FROM {user}")
    site.producer("topics", "apply", "--partitions", "1", "--replication-factor", "1")
    site.llm()
    site.load(1)
    assert "ok      rights" in site.producer("check")

    for statement in reading_user():
        sql(statement)
    url = site.environ["DOCLLM_DATABASE_URL"]
    site.environ["DOCLLM_DATABASE_URL"] = url.replace(f"{site.group}:pw@", f"{READER}:pw@")

    site.producer("status", "--json")
    for screen in READ:
        assert site.run("producer", *screen.split(), "--group", site.group).code == 0, screen
    exporter = site.start(*"producer exporter --listen 127.0.0.1:0 --group".split(), site.group)
    until(lambda: "/metrics" in exporter.err or not exporter.running, "the exporter to listen")
    page = Request(exporter.err.split()[-1])  # noqa: S310 - our own
    until(lambda: b"docllm_tasks_open{" in urlopen(page).read(), "a reading")  # noqa: S310
    site.write_lines([task_line(7)], "more")
    refused(site, "INSERT, UPDATE command denied", "producer", "load", "more.jsonl")
    refused(site, "UPDATE command denied", "producer", "cancel", "--batch", BATCH)
    refused(site, "command denied", "agent", "resume", "default")
    refused(site, "INSERT command denied", "agent", "--until-done")
    refused(site, "lets this user only read", "producer", "check")
    sql("DROP USER " + READER_ACCOUNT)


def test_an_agent_ends_when_a_right_is_revoked(site: Deployment, sql: Sql) -> None:
    """The agent names the right, and no task is given up for it."""
    site.producer("migrate")
    for table in metadata.tables:
        sql(f"GRANT {RUN} ON {{db}}.{table} TO {{user}}")
    sql("REVOKE INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX ON {db}.* FROM {user}")
    site.producer("topics", "apply", "--partitions", "1", "--replication-factor", "1")
    site.llm("--latency", "0")
    agent = site.agent()
    until(lambda: site.ledger.agents() or not agent.running, "the agent to start")
    sql("REVOKE INSERT ON {db}.task_result FROM {user}")
    site.load(1)

    assert agent.wait() == 3, agent.tail()
    assert "INSERT command denied" in agent.err
    assert "task_result" in agent.err
    assert "Traceback" not in agent.err
    assert site.ledger.open() == 1
