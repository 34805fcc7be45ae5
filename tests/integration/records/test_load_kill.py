"""`producer load` killed at random moments: a new start completes exactly the file's tasks."""

from time import monotonic

import pytest

from docllm.schemas.runtime.crash import VARIABLE
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment, seeded, task_line
from tests.integration.support.programs import pause

BATCHES, KILLS_EACH = 5, 4
TASKS, EMBEDDED_TASKS = 2000, 1000  # two chunks of a load, and five of an embedded one


@pytest.mark.proof
def test_killed_load_is_simply_started_again(deployment: Deployment) -> None:
    """After twenty kills the ledger holds the files' tasks once each, and each runs once."""
    chance = seeded()
    took_s = _whole_load(deployment, "whole")
    torn = orders = 0
    for number in range(BATCHES):
        _killed_load(deployment, f"b{number}", 0, point="load.accepted")
        for kill in range(1, KILLS_EACH):
            _killed_load(
                deployment, f"b{number}", chance.uniform(0, took_s / 2), writing=kill % 2 == 0
            )
            torn += 0 < deployment.ledger.loaded(f"b{number}") < _tasks(deployment)
        orders = deployment.ledger.orders()
        _whole_load(deployment, f"b{number}")
    llm = deployment.llm("--latency", "0")
    deployment.until_done("--slots", "200")

    run = deployment.evidence()
    figures = (
        f"{torn} of them left a part of a batch, {orders} publish orders were left by the dead"
    )
    print(f"a load takes {took_s:.1f} s; {BATCHES * KILLS_EACH} kills; {figures}")  # noqa: T201 - figures
    assert orders >= BATCHES
    assert len(llm.calls()) == (BATCHES + 1) * _tasks(deployment)
    assert checker.violations(run) == []


def _tasks(deployment: Deployment) -> int:
    return TASKS if deployment.kafka else EMBEDDED_TASKS


def _whole_load(deployment: Deployment, batch: str) -> float:
    """Load a batch to its end; return the seconds it took."""
    began_s = monotonic()
    deployment.load(_tasks(deployment), batch)
    return monotonic() - began_s


def _killed_load(
    deployment: Deployment, batch: str, moment_s: float, *, writing: bool = False, point: str = ""
) -> None:
    """Kill a load at a random moment, or at a crash point.

    With `writing`, kill it shortly after it has written something.
    """
    lines = (task_line(number) for number in range(_tasks(deployment)))
    path = deployment.write_lines(lines, batch)
    before = deployment.ledger.loaded(batch)
    load = deployment.start(
        "producer",
        "load",
        str(path),
        "--group",
        deployment.group,
        **({VARIABLE: point} if point else {}),
    )
    if writing:
        deployment.until(
            lambda: not load.running or deployment.ledger.loaded(batch) > before,
            "the load to write",
        )
    if point:
        load.wait()
    pause(moment_s / 10 if writing else moment_s)
    load.end()
