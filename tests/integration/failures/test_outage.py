"""A provider that fails for all in mid-run.

No task dies, almost no attempt counts, almost no call is made, and work resumes at once.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from math import inf

import pytest

from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.task.states import Status
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import Program, RehearsalLLM, pause
from tests.invariants.evidence import Call, Evidence

SLOTS, LATENCY_S = 20, 0.2
BEGIN_AT = 200  # settled tasks after which the agents run at full speed
LONG = bool(os.environ.get("DOCLLM_TEST_LONG"))
# Failures in a row that stop a route, and refusals in a row that park one that has answered.
RUN = 10
BEFORE_S, WITHIN_S, WINDOW_S, SHARE = 3.0, 5.0, 5.0, 0.5
TOML = "[llm]\ntimeout_s = 2\n"


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage: its faults, its least length, and the text in `status`.

    `begins` and `every_s` bound the calls meanwhile: so many until the route stops, then one in so
    many seconds.
    """

    faults: str
    lasts_s: float
    said: str
    begins: int = RUN
    every_s: float = 1.8  # a route that stopped is probed every 2 to 4 s
    locked: bool = False

    def most_calls(self, took_s: float) -> int:
        """Return how many calls an agent may make in an outage that took so long."""
        return self.begins + round(took_s / self.every_s)


SERVER_S, OTHER_S = (60.0, 60.0) if LONG else (20.0, 8.0)
KINDS = {
    "hang": Outage("hang=1", OTHER_S, "AMBIGUOUS"),
    "cut": Outage("cut=1", OTHER_S, "AMBIGUOUS"),
    # A route pauses when half of an answer time's calls were refused, not at the first one.
    "rate": Outage("429=1,retry_after=20", OTHER_S, "RATE", begins=SLOTS + 1, every_s=4.5),
    "money": Outage("quota=1", OTHER_S, "MONEY", every_s=inf, locked=True),
}


@pytest.mark.proof
def test_server_errors_for_all(deployment: Deployment) -> None:
    """With 503 for every call no task dies, and at most one attempt for each slot counts.

    One call at a time is tried; afterwards the agents run at full speed.
    """
    slots = [SLOTS // 2] * 2 if deployment.kafka else [SLOTS]

    _survives(deployment, Outage("503=1", SERVER_S, "SERVER"), slots, tasks=2000)


@pytest.mark.proof
@pytest.mark.parametrize("kind", KINDS)
def test_outage_of_another_kind(embedded: Deployment, kind: str) -> None:
    """The same holds for a provider that hangs, cuts, asks for 20 s, or wants money.

    For the last one, a person reports that the bill was paid.
    """
    _survives(embedded, KINDS[kind], [SLOTS], tasks=1600)


def _survives(deployment: Deployment, outage: Outage, slots: Sequence[int], tasks: int) -> None:
    deployment.use_tiers("2s", "4s")
    (deployment.folder / "docllm.toml").write_text(TOML)
    llm = deployment.llm("--latency", f"{LATENCY_S:g}")
    deployment.load(tasks)
    agents = [deployment.agent("--until-done", "--slots", str(count)) for count in slots]
    deployment.until_settled(BEGIN_AT)
    pause(BEFORE_S)

    began_s, ended_s = _happens(deployment, llm, outage)

    _end(agents)
    run = deployment.evidence()
    meanwhile = [
        call
        for call in llm.calls()
        if began_s <= call.start_s < ended_s and call.status != HTTPStatus.OK
    ]
    counted = sum(task.attempt for task in run.tasks)
    before = _rate(run, began_s - BEFORE_S, began_s)
    # A busy machine takes as much longer to resume as it was slower before.
    again_s = ended_s + WITHIN_S * max(1.0, SLOTS / LATENCY_S / before)
    after = _rate(run, again_s, again_s + WINDOW_S)
    print(  # noqa: T201 - figures
        f"{outage.faults}: {len(meanwhile)} calls in {ended_s - began_s:.0f} s, {counted} "
        "attempts counted, "
        f"{before:.0f} calls/s before, {after:.0f} after; full speed after "
        f"{_resumed_s(run, ended_s, before):.1f} s"
    )
    assert {task.status for task in run.tasks} == {Status.SUCCEEDED}
    assert counted <= sum(slots)
    assert len(meanwhile) <= sum(slots) + outage.most_calls(ended_s - began_s) * len(slots)
    assert after >= SHARE * before
    assert checker.violations(run) == []


def _happens(deployment: Deployment, llm: RehearsalLLM, outage: Outage) -> tuple[float, float]:
    """Run the outage; return when it began and when it was over."""
    clock = SystemClock()
    began_s = clock.now_s()
    llm.dial(outage.faults)
    deployment.until(lambda: _told(deployment, outage), f"status to say {outage.said}")
    pause(max(0.0, began_s + outage.lasts_s - clock.now_s()))
    llm.dial()
    if outage.locked:
        done = deployment.run("agent", "resume", "default", "--group", deployment.group)
        assert done.code == 0, done
    return began_s, clock.now_s()


def _told(deployment: Deployment, outage: Outage) -> bool:
    return any(
        "route default" in reason and outage.said in reason
        for reason in deployment.status()["reasons"]
    )


def _end(agents: Sequence[Program]) -> None:
    for agent in agents:
        assert agent.wait() == 0, agent.tail()


def _rate(run: Evidence, since_s: float, until_s: float) -> float:
    """Return the number of good answers per second."""
    return sum(since_s <= end_s < until_s for end_s in map(_good_end_s, run.calls)) / (
        until_s - since_s
    )


def _resumed_s(run: Evidence, ended_s: float, before: float) -> float:
    """Return after how many seconds the rate of good answers reached SHARE."""
    return next(
        (
            second / 4
            for second in range(120)
            if _rate(run, ended_s + second / 4, ended_s + second / 4 + 1) >= SHARE * before
        ),
        30.0,
    )


def _good_end_s(call: Call) -> float:
    return call.end_s if call.end_s is not None and call.status == HTTPStatus.OK else 0.0
