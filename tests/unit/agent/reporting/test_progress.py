"""An idle agent says why, but not all the time."""

import asyncio
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from agent.reporting.latest_report import LatestReport
from agent.reporting.progress import WARN_S, Progress
from agent.reporting.telemetry import Counts
from schemas.ledger.transactions import Transactions
from schemas.task.agent_report import AgentReport, Reason, ReasonCode


class Hour:
    """A clock whose sleeps end at once; the hour ends with a cancellation."""

    def __init__(self) -> None:
        self.passed_s = 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.passed_s += seconds
        if self.passed_s > 3600:
            raise asyncio.CancelledError

    def now_s(self) -> float:
        return self.passed_s

    def utc_s(self) -> float:
        return self.passed_s


def warnings(
    reasons: tuple[Reason, ...],
    caplog: pytest.LogCaptureFixture,
    deaths: Callable[[], list[str]] = list,
) -> list[str]:
    """Return the warnings of an agent with these reasons in an hour, without a terminal."""
    clock = Hour()
    latest = LatestReport(clock=clock)
    latest.put(AgentReport(reasons=reasons))
    counts = SimpleNamespace(
        summary=lambda: "0 succeeded",
        deaths=SimpleNamespace(news=lambda _group: deaths()),
    )
    progress = Progress(
        transactions=cast("Transactions", None),
        group="g",
        clock=clock,
        counts=cast("Counts", counts),
        latest=latest,
    )
    with caplog.at_level(logging.INFO), pytest.raises(asyncio.CancelledError):
        asyncio.run(progress.run())
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


def test_the_reason_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """While a route waits, the log says so once a minute."""
    waits = Reason(ReasonCode.ROUTE_PAUSED, "default", "RATE", "429", seconds=20.0)
    messages = warnings((waits,), caplog)

    assert set(messages) == {"route default waits 20 s: RATE: 429"}
    assert 1 < len(messages) <= 3600 / WARN_S + 1


def test_nothing_is_logged_while_no_task_waits(caplog: pytest.LogCaptureFixture) -> None:
    """An agent that works logs no warning."""
    assert warnings((), caplog) == []


def test_deaths_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Errors that kill tasks are logged once a minute, and not only at the end."""
    news = [["2 dead tasks of class BAD_REQUEST"], [], ["1 dead task of class TOO_LONG"]]

    messages = warnings((), caplog, lambda: news.pop(0) if news else [])

    assert messages == ["2 dead tasks of class BAD_REQUEST", "1 dead task of class TOO_LONG"]


def test_bar_is_for_the_foreground_of_a_terminal() -> None:
    """Only a program in the foreground of a terminal may draw a bar.

    A program with a session of its own, like the agents of one parent, may not.
    """
    code = "import os; from agent.reporting.progress import in_front; os._exit(10 + in_front())"
    command = [sys.executable, "-c", code]

    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, command)  # noqa: S606 - the program under test
    front = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    master, slave = os.openpty()
    apart = subprocess.run(command, stderr=slave, start_new_session=True, check=False).returncode
    for descriptor in (terminal, master, slave):
        os.close(descriptor)

    assert (front, apart) == (11, 10)
