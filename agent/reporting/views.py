"""Where an agent's progress goes: a bar, log lines, or the parent of several agents."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from docllm.agent.reporting.group_run import GroupRun
from docllm.agent.reporting.messages import to_line
from docllm.producer.ledger.status.progress import Totals
from docllm.producer.screen.live import Bar, bar

log = logging.getLogger(__name__)

# Time between two reads of the ledger: for a bar, and for the other views.
BAR_EVERY_S, CHECK_EVERY_S = 1.0, 5.0
LINE_S = 30.0


def in_front() -> bool:
    """Return whether stderr is a terminal with this process group in the foreground.

    Agents of one parent would draw over each other.
    """
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:
        return False


class View(Protocol):
    """Shows the progress of a run."""

    check_every_s: float

    def show(self, run: GroupRun, totals: Totals, now_s: float) -> None:
        """Show the progress."""
        ...


class BarView:
    """A bar on a terminal."""

    check_every_s = BAR_EVERY_S

    def __init__(self, shown: Bar) -> None:
        self._bar = shown

    def show(self, run: GroupRun, totals: Totals, now_s: float) -> None:  # noqa: ARG002
        """Move the bar."""
        done, total = run.shares
        self._bar.show(done, total, run.facts())


class LineView:
    """A log line now and then, while there is work or something changed."""

    check_every_s = CHECK_EVERY_S

    def __init__(self) -> None:
        self._said: Totals | None = None
        self._next_at_s = 0.0

    def show(self, run: GroupRun, totals: Totals, now_s: float) -> None:
        """Log a line if it is time."""
        if self._said is None:
            self._said, self._next_at_s = totals, now_s + LINE_S
        elif now_s >= self._next_at_s:
            self._next_at_s = now_s + LINE_S
            if totals.open or totals != self._said:
                log.info("%s", run.line())
            self._said = totals


class ParentView:
    """The parent of several agents, which shows one progress for all."""

    check_every_s = BAR_EVERY_S

    def __init__(self, tell: Callable[[bytes], None]) -> None:
        self._tell = tell

    def show(self, run: GroupRun, totals: Totals, now_s: float) -> None:  # noqa: ARG002
        """Send the totals."""
        self._tell(to_line(totals))


@contextmanager
def view_of(tell: Callable[[bytes], None] | None) -> Iterator[View]:
    """Yield the place where progress goes, while the block runs."""
    if tell is not None:
        yield ParentView(tell)
        return
    with bar("tasks", ticks=False, visible=in_front()) as shown:
        yield BarView(shown) if shown.shown else LineView()
