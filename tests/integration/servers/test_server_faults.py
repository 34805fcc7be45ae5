"""Servers are frozen or killed for 20 s in mid-run: nothing is lost, no attempt is used.

The agents recover by themselves.
"""

from collections.abc import Callable

import pytest

from tests.integration.support import checker
from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import pause
from tests.servers import DatabaseServer, Kafka, Server

OUTAGE_S = 20.0
TASKS = 1500


@pytest.fixture
def agents_at_work(on_kafka: Deployment) -> Deployment:
    """Return two agents in mid-run, whose calls are slow until the outage is over."""
    on_kafka.llm("--latency", "0", "--faults", "slow=1,slow_s=0.5")
    on_kafka.load(TASKS)
    for _ in range(2):
        on_kafka.agent("--until-done", "--slots", "8")
    on_kafka.until_settled(50)
    return on_kafka


def freeze(server: Server) -> None:
    """Freeze the server for the outage; its connections stay open."""
    server.freeze()
    pause(OUTAGE_S)
    server.thaw()


def crash(server: Server) -> None:
    """Kill the server, and start it again after the outage."""
    server.kill()
    pause(OUTAGE_S)
    server.start()


@pytest.mark.proof
@pytest.mark.parametrize("outage", [freeze, crash])
def test_database_outage_loses_nothing(
    agents_at_work: Deployment, database_server: DatabaseServer, outage: Callable[[Server], None]
) -> None:
    """While the database is away the agents wait; afterwards the run ends by itself."""
    outage(database_server)

    _ends_well(agents_at_work)


@pytest.mark.proof
@pytest.mark.parametrize("outage", [freeze, crash])
def test_kafka_outage_loses_nothing(
    agents_at_work: Deployment, kafka_server: Kafka, outage: Callable[[Server], None]
) -> None:
    """While Kafka is away, polled tasks are finished; afterwards the run ends by itself."""
    outage(kafka_server)

    _ends_well(agents_at_work)


def _ends_well(deployment: Deployment) -> None:
    left = deployment.ledger.open()
    agents = deployment.agents
    deployment.llms[0].dial()

    assert [agent.wait() for agent in agents] == [0, 0], "\n".join(agent.tail() for agent in agents)
    run = deployment.evidence()
    print(f"{left} tasks were left after the outage, {len(run.calls) - TASKS} calls were repeated")  # noqa: T201 - figures
    assert left
    assert checker.violations(run) == []
    assert checker.attempts_spent(run) == []
