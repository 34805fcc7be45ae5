"""A rebalance storm: agents join and leave under load, and no token is bought twice for it."""

import os
import signal
from time import monotonic

import pytest

from schemas.task.states import Status
from tests.integration import checker
from tests.integration.deployment import Deployment
from tests.integration.programs import pause

EVERY_S = 3.0
STORM_S = 60.0 if os.environ.get("DOCLLM_TEST_LONG") else 24.0
TASKS = 3000
AT_ONCE, SLOTS = 4, "10"


@pytest.mark.proof
@pytest.mark.timeout(400)
def test_rebalance_storm_repeats_nothing(deployment: Deployment) -> None:
    """Every 3 s one agent joins and another leaves; all tasks succeed with one call each.

    No client ends a call.
    """
    llm = deployment.llm("--latency", "0.5-1.5")
    deployment.load(TASKS)
    agents = [deployment.agent("--slots", SLOTS) for _ in range(AT_ONCE)]
    deployment.until(
        lambda: all(deployment.ledger.settled_by(one.pid) for one in agents), "all of them to work"
    )

    end_s = monotonic() + STORM_S
    while monotonic() < end_s:
        agents[-AT_ONCE].signal(signal.SIGTERM)
        agents.append(deployment.agent("--slots", SLOTS))
        pause(EVERY_S)
    left = deployment.ledger.open()
    for one in agents[-AT_ONCE:]:
        one.signal(signal.SIGTERM)
    assert {one.wait(60) for one in agents} == {0}
    idle = [one.name for one in agents if not deployment.ledger.settled_by(one.pid)]
    deployment.until_done("--slots", "100", agents=2)

    run = deployment.evidence()
    print(  # noqa: T201
        f"{len(agents)} agents, {len(idle)} settled nothing, {left} tasks were left after the storm"
    )
    assert left
    assert len(idle) < len(agents) / 2
    assert len(llm.calls()) == TASKS
    assert {call.status for call in run.calls} == {200}
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED}
    assert checker.calls_twice(run) == []
    assert checker.violations(run) == []
