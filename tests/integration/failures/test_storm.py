"""A rebalance storm: agents join and leave under load, and no token is bought twice for it."""

import os
import signal
from time import monotonic

import pytest

from docllm.schemas.task.states import Status
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import pause

EVERY_S = 3.0
CHANGES = 20 if os.environ.get("DOCLLM_TEST_LONG") else 8
TASKS = 1000
AT_ONCE, SLOTS = 4, 10
CALL_S = 3.0


@pytest.mark.proof
def test_rebalance_storm_repeats_nothing(deployment: Deployment) -> None:
    """Every 3 s one agent joins and another leaves; all tasks succeed with one call each.

    No client ends a call. On a busy machine an agent stays at least twice as long as the first ones
    needed to begin, and there are as many more tasks as all of them can do meanwhile.
    """
    llm = deployment.llm("--latency", f"{CALL_S - 1}-{CALL_S + 1}")
    deployment.load(TASKS)
    began_s = monotonic()
    agents = [deployment.agent("--slots", str(SLOTS)) for _ in range(AT_ONCE)]
    deployment.until(
        lambda: all(deployment.ledger.settled_by(agent.pid) for agent in agents),
        "all of them to work",
    )

    every_s = max(EVERY_S, 2 * (monotonic() - began_s) / AT_ONCE)
    in_storm = round(CHANGES * every_s * AT_ONCE * SLOTS / CALL_S)
    deployment.load(in_storm, "storm")
    for _ in range(CHANGES):
        agents[-AT_ONCE].signal(signal.SIGTERM)
        agents.append(deployment.agent("--slots", str(SLOTS)))
        pause(every_s)
    left = deployment.ledger.open()
    for agent in agents[-AT_ONCE:]:
        agent.signal(signal.SIGTERM)
    assert {agent.wait() for agent in agents} == {0}
    idle = [agent.name for agent in agents if not deployment.ledger.settled_by(agent.pid)]
    deployment.until_done("--slots", "100", agents=2)

    run = deployment.evidence()
    print(  # noqa: T201
        f"{len(agents)} agents, {len(idle)} settled nothing, {left} tasks were left after the storm"
    )
    assert left
    assert len(idle) < len(agents) / 2
    assert len(llm.calls()) == TASKS + in_storm
    assert {call.status for call in run.calls} == {200}
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED}
    assert checker.calls_twice(run) == []
    assert checker.violations(run) == []
