"""With `--wait`, agents and commands give a server that is not up yet some time."""

import signal

import pytest

from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import until
from tests.servers import Server

TRIES = "docllm tries again for up to"


@pytest.mark.parametrize(
    ("fixture", "name"),
    [("mariadb_server", "the database"), ("kafka_server", "Kafka"), ("redis_server", "Redis")],
)
def test_an_agent_begins_once_its_servers_answer(
    on_kafka: Deployment, request: pytest.FixtureRequest, fixture: str, name: str
) -> None:
    """It logs one line when it begins to wait, and one when the server answers."""
    server: Server = request.getfixturevalue(fixture)
    on_kafka.load(1)
    on_kafka.llm("--latency", "0")
    server.kill()
    agent = on_kafka.agent("--until-done", "--wait", "5m")
    until(lambda: TRIES in agent.err, "the line that says what the agent waits for")
    server.start()

    assert agent.wait() == 0, agent.tail()
    assert agent.err.count(TRIES) == 1
    assert agent.err.count(f"{name} answers, after") == 1


def test_a_command_waits_for_the_database_and_can_be_stopped(
    on_kafka: Deployment, mariadb_server: Server
) -> None:
    """SIGTERM ends the waiting; without the option the command ends at once."""
    mariadb_server.kill()
    group = ("--group", on_kafka.group)
    waiting = on_kafka.start("producer", "status", *group, "--wait", "5m")
    stopped = on_kafka.start("producer", "export", *group, "--wait", "5m")
    agent = on_kafka.agent("--rehearsal", "--wait", "5m")
    until(lambda: TRIES in stopped.err and TRIES in waiting.err, "the commands wait")
    until(lambda: TRIES in agent.err, "the agent waits")
    stopped.signal(signal.SIGTERM)
    agent.signal(signal.SIGTERM)

    assert stopped.wait() == 130
    assert agent.wait() == 0
    assert on_kafka.run("producer", "status", *group).code == 3
    mariadb_server.start()
    assert waiting.wait() == 0
    assert "the database answers, after" in waiting.err


def test_a_wrong_password_and_a_wrong_database_are_not_waited_for(on_kafka: Deployment) -> None:
    """The server is up, and says no."""
    url = on_kafka.environ["DOCLLM_DATABASE_URL"]
    for wrong in (url.replace("docllm@", "docllm:wrong@"), f"{url}_of_nobody"):
        done = on_kafka.run("producer", "status", "--wait", "1d", DOCLLM_DATABASE_URL=wrong)

        assert done.code == 3
        assert TRIES not in done.err
