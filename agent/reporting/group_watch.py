"""The parent's view of its agents: one progress and one summary for all of them."""

import logging
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from docllm.agent.reporting.group_run import GroupRun
from docllm.agent.reporting.telemetry import death_lines
from docllm.agent.reporting.views import DeadExample, Note, View, from_line, view_of
from docllm.producer.ledger.status.progress import Totals
from docllm.producer.text.printable import shown
from docllm.schemas.codes import Code
from docllm.schemas.runtime.clock import Clock

log = logging.getLogger(__name__)

TICK_S = 1.0


class GroupWatch:
    """Shows what several agents report of their group. `priced` are the models with a price."""

    tick_s = TICK_S

    def __init__(self, *, view: View, clock: Clock, group: str, priced: Collection[str]) -> None:
        self._view = view
        self._clock = clock
        self._group = group
        self._run = GroupRun(priced=priced)
        self._totals = Totals()
        self._examples: dict[str, str] = {}
        self._notes: dict[str, str] = {}  # the code of each text
        self._next_at_s = 0.0
        # Lines of the agents would tear a bar.
        self.takes_errors = view.draws

    def take_message(self, message: bytes) -> None:
        """Take in what an agent reports."""
        match from_line(message):
            case Totals() as totals:
                self._totals = totals
                self._run.see(totals, self._clock.now_s())
            case DeadExample(error_class, text):
                self._examples.setdefault(error_class, text)
            case Note(text, code):
                self._notes[text] = code

    def show_line(self, line: bytes) -> None:
        """Show a line of an agent above the bar."""
        sys.stderr.write(shown(line.decode("utf-8", "replace")) + "\n")

    def tick(self) -> None:
        """Show the progress of now."""
        now_s = self._clock.now_s()
        if self._run.begun and now_s >= self._next_at_s:
            self._next_at_s = now_s + TICK_S / 2
            self._view.show(self._run, self._totals, now_s)

    def log_summary(self) -> None:
        """Log what became of the run."""
        if not self._run.begun:
            return
        for line in death_lines(self._run.dead_by_class, self._examples, self._group):
            log.warning("%s", line, extra={"code": Code.TASKS_DEAD})
        for note, code in self._notes.items():
            log.warning("%s", note, extra={"code": code})
        log.info("%s", self._run.summary(self._clock.now_s()))


@contextmanager
def watch(*, clock: Clock, group: str, priced: Collection[str]) -> Iterator[GroupWatch]:
    """Yield a watch over several agents, with a bar while the block runs."""
    with view_of(None) as view:
        yield GroupWatch(view=view, clock=clock, group=group, priced=priced)
