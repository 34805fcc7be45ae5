"""Starts and restarts of children, without processes."""

import sys
from pathlib import Path

import pytest

from docllm.agent.process.supervisor import Backoff, Supervisor
from docllm.agent.reporting.group_watch import GroupWatch
from docllm.agent.reporting.views import View
from docllm.schemas.runtime.clock import SystemClock


def test_wait_doubles_up_to_its_limit() -> None:
    """The wait is 1, 2, 4 ... 60 s; chance adds up to a fifth; failures can be any number."""
    waits = [Backoff().wait_s(failures, 0.0) for failures in (1, 2, 3, 6, 7, 1000)]

    assert waits == [1, 2, 4, 32, 60, 60]
    assert Backoff().wait_s(1, 1.0) == pytest.approx(1.2)


def test_a_start_that_fails_is_tried_again(tmp_path: Path) -> None:
    """A failed start, without a free process or with a replaced program, ends no other child."""
    command = [[str(tmp_path / "agent")], [sys.executable, "-c", ""]]
    began_s = SystemClock().now_s()
    both = Supervisor(
        command=lambda number, _report: command[number - 1],
        count=2,
        until_done=False,
        clock=SystemClock(),
        jitter=lambda: 0.0,
        watch=GroupWatch(view=View(lambda *_: None), clock=SystemClock(), group="g", priced=()),
    )

    both._start_due()

    (due_at_s,) = both._due()
    assert due_at_s >= began_s + 1.0
    (other,) = both._running()
    assert other.wait() == 0
