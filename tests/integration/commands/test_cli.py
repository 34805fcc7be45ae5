"""The command line: exit codes 0 to 5, advice on stderr, and never a secret."""

import secrets
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pymysql
import pytest

from docllm.schemas.version import VERSION
from tests.integration.support.deployment import Deployment, task_line
from tests.servers import DatabaseServer, Kafka
from tests.servers.process import free_port


@pytest.mark.parametrize("program", ["agent", "producer"])
def test_version_and_help(embedded: Deployment, program: str) -> None:
    """--version and --help end with 0; the help has examples."""
    assert embedded.run(program, "--version").out == f"docllm {VERSION}\n"
    assert "examples:" in embedded.run(program, "--help").out


def test_an_agent_without_an_llm_names_the_missing_setting(embedded: Deployment) -> None:
    """Without an LLM the exit code is 2, with three lines to type, one of them --rehearsal."""
    done = embedded.run("agent")

    assert done.code == 2
    assert "--rehearsal" in done.err
    assert "OPENAI_API_KEY" in done.err


def test_empty_group_is_done(embedded: Deployment) -> None:
    """An agent of a group without tasks leaves at once with 0, and does not look lost."""
    embedded.llm()

    (agent,) = embedded.until_done()

    assert "no tasks" in agent.err
    assert all(row.stopped_at is not None for row in embedded.ledger.agents())


def test_dead_tasks_are_exit_0_with_counts(embedded: Deployment) -> None:
    """A run whose tasks died is done with 0; the last line counts them."""
    embedded.llm("--latency", "0", "--faults", "400=1")
    embedded.load(2)

    (agent,) = embedded.until_done()

    assert "2 dead" in agent.err


def test_bad_lines_are_exit_1_and_the_good_ones_are_loaded(embedded: Deployment) -> None:
    """Each bad line is reported with its number and stored in FILE.rejects.jsonl.

    Once it is repaired there, `load` accepts it.
    """
    path = embedded.folder / "mixed.jsonl"
    path.write_bytes(
        b'{"id":"a"\n' + orjson.dumps(task_line(1)) + b"\n" + b'{"id":" b ","prompt":"x"}\n'
    )

    done = embedded.run("producer", "load", str(path))

    rejects = [
        orjson.loads(text) for text in Path(f"{path}.rejects.jsonl").read_bytes().splitlines()
    ]
    assert done.code == 1
    assert [reject["line"] for reject in rejects] == [1, 3]
    assert len(embedded.ledger.tasks()) == 1


@pytest.mark.parametrize("command", [["agent", "--rehearsal"], ["producer", "status"]])
def test_wrong_configuration_is_exit_2(embedded: Deployment, command: list[str]) -> None:
    """A wrong setting ends both programs with 2; the error names it."""
    done = embedded.run(*command, DOCLLM_CONFIG="nowhere.toml")

    assert done.code == 2
    assert "nowhere.toml" in done.err


@pytest.mark.parametrize("option", ["--batch=b", "--dry-run"])
def test_a_load_that_is_stopped_leaves_nothing_half_done(embedded: Deployment, option: str) -> None:
    """SIGTERM ends a load like Ctrl-C with 130, also while standard input is silent.

    The draft of the rejects and the copied input are removed.
    """
    command = [sys.executable, "-m", "producer", "load", "-", option]
    environ = embedded.environ | {"TMPDIR": str(embedded.folder)}
    with subprocess.Popen(
        command, cwd=embedded.folder, env=environ, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as load:
        assert load.stdin is not None
        load.stdin.write(b'{"id": "a", "prompt": "p"}\n' + b'{"id": ""}\n' * 1000)
        load.stdin.flush()
        embedded.until(lambda: left_by_load(embedded.folder), "a file that is not whole")

        load.terminate()

        assert load.wait() == 130
    assert not left_by_load(embedded.folder)


def left_by_load(folder: Path) -> list[Path]:
    return [*folder.glob(".*.part"), *folder.glob("docllm-stdin-*")]


@pytest.mark.parametrize(
    "command", [["agent", "--rehearsal"], ["producer", "status"], ["producer", "migrate"]]
)
def test_database_that_does_not_answer_is_exit_3(embedded: Deployment, command: list[str]) -> None:
    """An unreachable database is 3, with its address but without its password."""
    port, password = free_port(), secrets.token_hex(8)
    url = f"mysql://docllm:{password}@127.0.0.1:{port}/docllm"

    done = embedded.run(
        *command, DOCLLM_KAFKA_BOOTSTRAP=f"127.0.0.1:{port}", DOCLLM_DATABASE_URL=url
    )

    assert done.code == 3
    assert str(port) in done.err
    assert password not in done.out + done.err


def test_kafka_that_does_not_answer_is_exit_3(on_kafka: Deployment) -> None:
    """An unreachable Kafka is 3, with its address."""
    bootstrap = f"127.0.0.1:{free_port()}"

    for command in (["agent", "--rehearsal"], ["producer", "topics", "apply"]):
        done = on_kafka.run(*command, "--group", on_kafka.group, DOCLLM_KAFKA_BOOTSTRAP=bootstrap)

        assert done.code == 3, done
        assert bootstrap in done.err


def test_unprepared_servers_are_exit_4(
    embedded: Deployment, kafka_server: Kafka, database_server: DatabaseServer
) -> None:
    """An empty database and missing topics are 4 with the command to run.

    Afterwards the agent starts.
    """
    name = f"d{secrets.token_hex(4)}"
    environ: dict[str, Any] = {
        "DOCLLM_KAFKA_BOOTSTRAP": kafka_server.bootstrap,
        "DOCLLM_DATABASE_URL": database_server.create_database(name),
    }
    group = ["--group", name]

    empty = embedded.run("agent", "--rehearsal", *group, **environ)
    assert embedded.run("producer", "migrate", *group, **environ).code == 0
    no_topics = embedded.run("agent", "--rehearsal", *group, **environ)
    checked = embedded.run("producer", "topics", "check", *group, **environ)
    assert (
        embedded.run("producer", "topics", "apply", "--partitions", "2", *group, **environ).code
        == 0
    )

    assert (empty.code, "docllm migrate" in empty.err) == (4, True)
    assert (no_topics.code, "topics apply" in no_topics.err) == (4, True)
    assert checked.code == 4
    assert embedded.run("agent", "--rehearsal", "--until-done", *group, **environ).code == 0


def test_check_tests_every_part(deployment: Deployment) -> None:
    """`check` is 0 with a line for each part if all is well; without the LLM it is 3."""
    llm = deployment.llm("--latency", "0")
    if not deployment.kafka:
        deployment.producer("topics", "apply")

    well = deployment.run("producer", "check", "--group", deployment.group)
    llm.end()
    without = deployment.run("producer", "check", "--group", deployment.group)

    assert well.code == 0, well
    assert "FAILED" not in well.out
    assert without.code == 3, without


def test_no_secret_is_ever_shown(on_kafka: Deployment, database_server: DatabaseServer) -> None:
    """Key and passwords are in no log and no output, whether programs work or fail."""
    canary = f"canary{secrets.token_hex(8)}"
    url = with_password(database_server, on_kafka.group, canary)
    on_kafka.environ |= {
        "DOCLLM_DATABASE_URL": url,
        "DOCLLM_LLM_API_KEY": canary,
        "DOCLLM_REDIS_URL": f"redis://:{canary}@127.0.0.1:{free_port()}/0",
    }
    (on_kafka.folder / "docllm.toml").write_text(f'[kafka.client]\n"sasl.password" = "{canary}"\n')
    llm = on_kafka.llm("--latency", "0", "--faults", "401=1")
    on_kafka.load(20)
    agent = on_kafka.agent("--until-done", "--log-level", "DEBUG")
    on_kafka.until(lambda: "401" in on_kafka.producer("status"), "status to tell of 401")
    llm.dial()
    assert agent.wait() == 0, agent.tail()
    on_kafka.run("producer", "check", "--group", on_kafka.group)
    on_kafka.run("producer", "export", "--group", on_kafka.group)
    llm.end()
    on_kafka.run("producer", "check", "--group", on_kafka.group)
    on_kafka.run(
        "agent", "--group", on_kafka.group, DOCLLM_DATABASE_URL=url.replace(canary, f"{canary}x")
    )
    on_kafka.run("agent", "--group", on_kafka.group, DOCLLM_SLOTS=canary)
    on_kafka.run("agent", "--group", on_kafka.group, DOCLLM_REDIS_URL=canary)

    assert "401" in on_kafka.said()
    assert canary not in on_kafka.said()


def with_password(server: DatabaseServer, database: str, password: str) -> str:
    """Make a user with this password; return the database address for that user."""
    with (
        closing(pymysql.connect(host="127.0.0.1", port=server.port, user="docllm")) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(f"CREATE USER '{database}'@'127.0.0.1' IDENTIFIED BY '{password}'")
        cursor.execute(f"GRANT ALL PRIVILEGES ON `{database}`.* TO '{database}'@'127.0.0.1'")
    return f"mysql://{database}:{password}@127.0.0.1:{server.port}/{database}"


@pytest.mark.parametrize("command", ["agent --until-done --rehearsal", "producer status"])
def test_a_standard_file_that_is_closed_is_no_error(embedded: Deployment, command: str) -> None:
    """A closed standard file is no error; services and cron jobs start programs this way.

    The event loop would end the process otherwise. The tests of the first steps close each file.
    """
    shell = ["sh", "-c", f"exec {sys.executable} -m {command} <&- >&- 2>&-"]

    done = subprocess.run(
        shell, check=False, cwd=embedded.folder, env=embedded.environ, capture_output=True
    )

    assert done.returncode == 0, done


def test_a_file_with_any_name_is_loaded_whatever_the_encoding(embedded: Deployment) -> None:
    """A file with any name is loaded in any encoding, though the result names its batch."""
    path = embedded.folder / "caf\u00e9.jsonl"
    path.write_bytes(orjson.dumps(task_line(1)) + b"\n")

    done = embedded.run("producer", "load", str(path), PYTHONIOENCODING="ascii")

    assert (done.code, done.err) == (0, "")
    assert "batch caf\\xe9: 1 task loaded" in done.out
