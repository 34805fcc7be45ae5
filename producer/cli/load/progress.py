"""Shows how far a load is: a bar on a terminal, elsewhere a line now and then."""

from collections.abc import Callable

from docllm.producer.screen.live import Bar
from docllm.producer.screen.output import note
from docllm.producer.text.pace import PaceMeter, left_text, rate_text
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.text.wording import number_of

LINE_S = 30.0

# How much of the input is done, given the tasks that are loaded, and how much there is, if known.
Share = Callable[[int], tuple[float, float | None]]


class LoadProgress:
    """The progress of one load."""

    def __init__(self, *, shown: Bar, share: Share, clock: Clock, batch: str) -> None:
        self._bar = shown
        self._share = share
        self._clock = clock
        self._batch = batch
        self._tasks, self._input = PaceMeter(), PaceMeter()
        self._tasks.see(0, clock.now_s())
        self._next_at_s = clock.now_s() + LINE_S

    def show(self, tasks: int) -> None:
        """Show the progress, with so many tasks loaded."""
        now_s = self._clock.now_s()
        done, total = self._share(tasks)
        self._tasks.see(tasks, now_s)
        self._input.see(done, now_s)
        facts = [number_of(tasks, "task")]
        if total:
            facts.append(f"{min(100.0, 100 * done / total):.0f} %")
        left_s = None if total is None else self._input.left_s(max(0.0, total - done))
        facts += [rate_text(self._tasks.per_s), left_text(left_s)]
        if self._bar.shown:
            self._bar.show(done, total, "  ".join(filter(None, facts)))
        elif now_s >= self._next_at_s:
            self._next_at_s = now_s + LINE_S
            note(f"loading {self._batch}: {', '.join(filter(None, facts))}")
