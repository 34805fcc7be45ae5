"""A bad release does not turn a topic into dead letters: a guard stops it after about ten.

The next release goes on.
"""

import signal
from collections import Counter
from time import monotonic

import orjson
import pytest

from docllm.agent.judge.guard_rule import DEATHS
from docllm.schemas.task.states import Status
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment, task_line
from tests.integration.support.installations import repeated_on_embedded
from tests.integration.support.programs import Program, pause, until

BATCHES, TASKS = ("one", "two"), 60
LOOKS_S = 30.0
SETTINGS = """
[guard]
probe_s = {probe_s}

[types.document]
handler = "release:handle"
"""
RAISES = """
async def handle(context):
    raise ValueError("this release is broken")
"""
DIES = """
import os

async def handle(context):
    os._exit(1)
"""
WORKS = """
async def handle(context):
    messages = [{"role": "user", "content": await context.document()}]
    return (await context.complete({"model": context.model, "messages": messages})).text
"""


def release(deployment: Deployment, handler: str, *, probe_s: float = 300.0) -> None:
    """Install a release for agents that start from now on."""
    (deployment.folder / "release.py").write_text(handler)
    (deployment.folder / "docllm.toml").write_text(SETTINGS.format(probe_s=probe_s))


def raised(deployment: Deployment) -> dict[str, str]:
    """Return the cause by batch, as in `guard list`."""
    listing = orjson.loads(deployment.producer("guard", "list", "--json"))
    return {guard["batch"]: guard["cause"] for guard in listing["guards"]}


def deaths(deployment: Deployment) -> Counter[str]:
    """Return how many tasks of each batch are dead."""
    return Counter(
        task.name.partition("/")[0]
        for task in deployment.ledger.tasks()
        if task.status == Status.DEAD
    )


@repeated_on_embedded
def test_a_release_that_raises_on_every_task_kills_ten_of_a_batch(deployment: Deployment) -> None:
    """A release that raises on every task kills ten of a batch; the others wait uncounted.

    A probe notices the repaired release, and all other tasks succeed.
    """
    deployment.use_tiers("1s", "2s", max_attempts=2)
    deployment.llm("--latency", "0")
    for batch in BATCHES:
        deployment.load(TASKS, batch)
    release(deployment, RAISES, probe_s=LOOKS_S)
    began_s = monotonic()
    bad = [deployment.agent("--slots", "20") for _ in range(2)]
    deployment.until(lambda: raised(deployment) == dict.fromkeys(BATCHES, "handler"), "both guards")
    reasons = deployment.status()["reasons"]
    pause(6)
    assert set(deaths(deployment)) == set(BATCHES)
    for agent in bad:
        agent.signal(signal.SIGTERM)
    assert [agent.wait() for agent in bad] == [0, 0]
    # The first look is of one task, and each further one of twice as many.
    looks = 1 + int((monotonic() - began_s) / LOOKS_S)
    most = DEATHS + 2**looks - 1
    assert most < TASKS / 2, "the machine is too slow to tell a guard from none"

    release(deployment, WORKS, probe_s=2)
    deployment.until_done()

    run = deployment.evidence()
    assert any(
        reason.startswith("guard of batch one, ") and "ValueError: this release is broken" in reason
        for reason in reasons
    )
    assert raised(deployment) == {}
    died = deaths(deployment)
    assert {batch: died[batch] for batch in BATCHES if not DEATHS <= died[batch] <= most} == {}
    assert {row.disposition for row in deployment.ledger.dead_letters()} == {"exhausted"}
    assert deployment.ledger.counts()["succeeded"] == len(BATCHES) * TASKS - died.total()
    assert checker.violations(run) == []


@pytest.mark.proof
def test_a_release_that_kills_its_process_kills_ten_tasks(embedded: Deployment) -> None:
    """A release that kills its process kills ten tasks, however often it is restarted.

    Then its guard lets one through in five minutes. Repaired, and opened by a person, all succeed.
    """
    embedded.use_tiers("1s", "2s")
    embedded.llm("--latency", "0")
    embedded.load(TASKS)
    release(embedded, DIES)
    starts = 0
    while "tasks" not in raised(embedded):
        starts += 1
        assert starts < 40, (
            embedded.ledger.counts()
        )  # a task is dead when it was alone: one in a start
        lives(embedded.agent("--slots", "30"), 20)  # it dies seconds after it has begun
    crashes = sum(not lives(embedded.agent("--slots", "30"), 5) for _ in range(3))
    killed = deaths(embedded)["tasks"]

    release(embedded, WORKS)
    output = embedded.producer("guard", "open", "tasks")
    embedded.until_done()

    print(f"{starts} starts until the guard was raised, {killed} dead tasks")  # noqa: T201 - figures
    assert crashes <= 1
    assert raised(embedded) == {}
    assert (
        output
        == "batch tasks, type document, any route: open; its tasks run again within seconds\n"
    )
    assert killed == deaths(embedded)["tasks"] == 10
    assert {row.disposition for row in embedded.ledger.dead_letters()} == {"worker_lost"}
    assert embedded.ledger.counts()["succeeded"] == TASKS - killed
    assert checker.violations(embedded.evidence()) == []


def lives(agent: Program, most_s: float) -> bool:
    """Run an agent for some seconds, then kill it; return whether it lived until then.

    A node that is taken away has the same effect.
    """
    end_s = monotonic() + most_s
    until(lambda: not agent.running or monotonic() > end_s, "an agent to end, or its time")
    alive = agent.running
    agent.end()
    return alive


def test_guards_are_listed_and_opened_by_name(embedded: Deployment) -> None:
    """A waiting batch is listed with its cause.

    A guard that is not raised, unknown or not named ends the command with the code for it.
    """
    embedded.use_tiers("1s", "2s", max_attempts=1)
    llm = embedded.llm("--latency", "0", "--faults", "400=1")
    release(embedded, RAISES)
    path = embedded.write_lines([task_line(0)], "single")
    embedded.producer("load", str(path))
    nothing = embedded.producer("guard", "list")
    agent = embedded.agent("--slots", "1")

    embedded.until(
        lambda: deaths(embedded)["single"] == 1, "the last task of a batch to die of its own fault"
    )
    agent.signal(signal.SIGTERM)

    assert agent.wait() == 0
    assert nothing == ""
    assert [call.name for call in llm.calls()] == ["docllm-probe/default"]
    assert embedded.producer("guard", "open", "single") == "no guard of batch single is raised\n"
    embedded.producer("guard", "open", "nowhere", code=2)
    embedded.producer("guard", "open", code=2)
    listed = orjson.loads(embedded.producer("guard", "list", "--json"))
    assert listed == {"version": 1, "group": "docllm", "guards": []}
