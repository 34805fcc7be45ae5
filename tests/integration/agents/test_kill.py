"""Twenty kills (kill -9) of one of two agents in mid-run lose nothing.

Every repeated call belongs to a killed agent.
"""

import random
import signal
from functools import partial

import pytest

from docllm.schemas.task.states import Status
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment, seeded
from tests.integration.support.programs import Program, pause

KILLS = 20
SLOTS = "8"
MAX_PAUSE_S = 1.5


@pytest.mark.proof
def test_twenty_kills_lose_nothing(deployment: Deployment) -> None:
    """Every task succeeds once; ledger and LLM server agree; offsets end at the log's end."""
    chance = seeded()
    deployment.llm("--latency", "1.4-2")
    deployment.load(3000)
    agents = [_agent(deployment), _agent(deployment)]

    for _ in range(KILLS):
        _kill_one(deployment, agents, chance)
    left = deployment.ledger.open()
    for agent in agents:
        deployment.until(partial(deployment.ledger.claims_of, agent.pid), f"{agent.name} to work")
        agent.signal(signal.SIGTERM)
    assert [agent.wait() for agent in agents] == [0, 0]
    deployment.until_done("--slots", "100", agents=2)

    run = deployment.evidence()
    repeats = len(run.calls) - len(run.tasks)
    print(f"{KILLS} kills, {repeats} repeated calls, {left} tasks were left after the last one")  # noqa: T201 - figures
    assert left
    assert repeats
    assert {
        task.name for task in run.tasks if task.status != Status.SUCCEEDED
    } <= deployment.given_up
    assert checker.violations(run) == []


def _agent(deployment: Deployment) -> Program:
    return deployment.agent("--slots", SLOTS)


def _kill_one(deployment: Deployment, agents: list[Program], chance: random.Random) -> None:
    """Wait for a settle and a random moment, kill one of the two agents, and start another."""
    deployment.until_settled(deployment.ledger.counts()["succeeded"] + 1)
    pause(chance.uniform(0, MAX_PAUSE_S))
    victim = chance.randrange(2)
    deployment.until(
        lambda: deployment.ledger.claims_of(agents[victim].pid) and deployment.kill(agents[victim]),
        f"{agents[victim].name} to work",
    )
    agents[victim] = _agent(deployment)
