"""Crash suspects run one at a time, and the log names the one that runs."""

import pytest

from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.schemas.agent_report import SuspectReport
from tests.support.slots import claimed

HARMLESS = claimed(1, 0.0)
SUSPECT = claimed(2, 0.0, lease_losses=2)
OTHER = claimed(3, 0.0, lease_losses=2)
ALONE = claimed(4, 0.0, lease_losses=3)


def test_of_all_suspects_one_may_run() -> None:
    """Other tasks run beside it."""
    suspects = CrashSuspects()
    suspects.enter(HARMLESS)
    assert suspects.may_run(SUSPECT)

    suspects.enter(SUSPECT)

    assert suspects.reports == (SuspectReport(2, "b", "k", 2),)
    assert suspects.may_run(SUSPECT)
    assert suspects.may_run(HARMLESS)
    assert not suspects.may_run(OTHER)
    suspects.leave(SUSPECT)
    assert suspects.may_run(OTHER)


def test_nothing_runs_beside_a_task_that_was_lost_three_times() -> None:
    """The agent can have been lost over this task only."""
    suspects = CrashSuspects()
    suspects.enter(SUSPECT)
    assert not suspects.runs_alone
    suspects.leave(SUSPECT)

    suspects.enter(ALONE)

    assert suspects.runs_alone
    suspects.leave(HARMLESS)
    assert suspects.runs_alone
    suspects.leave(ALONE)
    assert not suspects.runs_alone


def test_the_log_names_the_suspect_that_runs(caplog: pytest.LogCaptureFixture) -> None:
    """A task that kills its agent cannot be named afterwards."""
    suspects = CrashSuspects()

    for delivery in (HARMLESS, SUSPECT, ALONE):
        suspects.warn(delivery)

    assert caplog.messages == [
        "task k of batch b runs as the only suspect of its agent: 2 agents were lost over it",
        "task k of batch b runs alone in its agent: 3 agents were lost over it",
    ]
