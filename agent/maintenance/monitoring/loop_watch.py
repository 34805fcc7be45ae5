"""Names the task that blocks the event loop, from a thread of its own.

A handler that computes for long, or waits without `await`, stops everything else in its agent. The
watch asks the loop to answer every half second. If no answer comes, it looks at which task runs.

Delays that the machine causes do not count: a stopped process, a suspended machine, a lack of free
processors, or paging.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any

from docllm.agent.process.frames import frames_of_stack, frames_text, place_of
from docllm.agent.process.use import ThreadUse, thread_use
from docllm.producer.text.agent_sentences import blocking_text
from docllm.producer.text.printable import FRAMES
from docllm.schemas.agent_report import BlockReport
from docllm.schemas.codes import Code
from docllm.schemas.runtime.clock import Clock

log = logging.getLogger(__name__)

EVERY_S = 0.5
LATE_S = 2 * EVERY_S  # a check that comes later was delayed by the machine
NOTED_S = 2.0  # a block that lasts as long is logged
_AGAIN_S, _THEN_EVERY_S = 10.0, 60.0
_PAGING = 10  # reads from the disk between two checks
_ADVICE = (
    "nothing else runs in this agent meanwhile; use libraries that await, or run this part in a "
    "thread, with asyncio.to_thread"
)

WorkOf = Callable[["asyncio.Task[Any]"], BlockReport | None]
_NOBODY = BlockReport()


@dataclass(frozen=True, slots=True)
class Glance:
    """A moment at which the watch checked: what the loop's thread had used until then."""

    at_s: float
    use: ThreadUse | None


def blocked_between_s(before: Glance, now: Glance) -> float:
    """Return the longest time for which the loop's own code can have blocked it between glances."""
    elapsed_s = now.at_s - before.at_s
    if before.use is None or now.use is None:
        return min(elapsed_s, LATE_S)
    cpu_s = now.use.cpu_s - before.use.cpu_s
    if now.use.faults - before.use.faults >= _PAGING:
        return min(elapsed_s, cpu_s)
    own_s = max(0.0, elapsed_s - (now.use.ready_s - before.use.ready_s))
    # Code that keeps the interpreter's lock delays the watch too, but then it uses a processor.
    return own_s if elapsed_s <= LATE_S else min(own_s, max(LATE_S, cpu_s))


def _note_unseen(blocked_s: float) -> None:
    """Log a block that this thread could not observe, because it held the interpreter's lock."""
    if blocked_s >= NOTED_S:
        log.warning(
            "the event loop was blocked for %.0f s by code that also stopped all other threads, "
            "such as a regular expression: run it in a process of its own",
            blocked_s,
            extra={"code": Code.LOOP_BLOCKED},
        )


def _line_times() -> Iterator[float]:
    return chain((NOTED_S, _AGAIN_S), count(_THEN_EVERY_S, _THEN_EVERY_S))


@dataclass(slots=True)
class _Block:
    """One task, or a callback without a task, that blocks the loop."""

    task: "asyncio.Task[Any] | None"
    lasts_s: float = 0.0
    report: BlockReport | None = None  # None until it counts as blocking
    times: Iterator[float] = field(default_factory=_line_times)
    line_due_s: float = 0.0

    def __post_init__(self) -> None:
        self.line_due_s = next(self.times)


class LoopWatch:
    """Watches the event loop in which it runs."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._stopped = threading.Event()
        self._block: _Block | None = None
        self._loop: _Loop | None = None

    @property
    def lag_s(self) -> float:
        """How long the loop took to answer lately, or has not answered until now."""
        return 0.0 if self._loop is None else self._loop.lag_s(self._clock.now_s())

    def blocked(self) -> BlockReport | None:
        """Return what blocks the loop now, from any thread; None if nothing does."""
        block = self._block
        return None if block is None else block.report

    async def run(self, work_of: WorkOf) -> None:
        """Watch until cancelled. `work_of` returns which task of a batch an asyncio task runs."""
        loop = self._loop = _Loop(asyncio.get_running_loop(), clock=self._clock)
        thread = threading.Thread(
            target=self._watch, args=(loop, work_of), name="loop-watch", daemon=True
        )
        thread.start()
        try:
            await loop.never()
        finally:
            self._stopped.set()
            thread.join()

    def _watch(self, loop: "_Loop", work_of: WorkOf) -> None:
        before = Glance(self._clock.now_s(), loop.use())
        loop.ask()
        while not self._stopped.wait(EVERY_S):
            now = Glance(self._clock.now_s(), loop.use())
            if loop.answered:
                self._end()
                _note_unseen(blocked_between_s(before, now))
                loop.ask()
            else:
                self._note(loop, work_of, blocked_between_s(before, now))
            before = now
        self._end()

    def _note(self, loop: "_Loop", work_of: WorkOf, blocked_s: float) -> None:
        task = loop.current_task()
        if self._block is None or self._block.task is not task:
            self._end()
            self._block = _Block(task)
        block = self._block
        block.lasts_s += blocked_s
        if block.lasts_s < NOTED_S:
            return
        frames = loop.stack()
        work = (work_of(task) if task is not None else None) or _NOBODY
        report = replace(work, place=place_of(frames), blocked_s=block.lasts_s)
        is_first, block.report = block.report is None, report
        if block.lasts_s >= block.line_due_s:
            block.line_due_s = next(time for time in block.times if time > block.lasts_s)
            advice = f"; {_ADVICE}" if is_first else ""
            text = f"the event loop has been blocked {blocking_text(report)}{advice}"
            log.warning("%s", text, extra={FRAMES: frames_text(frames), "code": Code.LOOP_BLOCKED})

    def _end(self) -> None:
        block, self._block = self._block, None
        if block is not None and block.report is not None:
            report = replace(block.report, blocked_s=block.lasts_s)
            log.warning("the event loop runs again; it was blocked %s", blocking_text(report))


class _Loop:
    """The event loop of the thread that creates this object, as another thread sees it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._asked_at_s, self._lag_s = clock.now_s(), 0.0
        self._ident = threading.get_ident()
        self._native_id = threading.get_native_id()
        self.answered = False

    async def never(self) -> None:
        """Wait until cancelled."""
        await self._loop.create_future()

    def ask(self) -> None:
        """Ask the loop to answer."""
        self._asked_at_s, self.answered = self._clock.now_s(), False
        self._loop.call_soon_threadsafe(self._answer)

    def lag_s(self, now_s: float) -> float:
        """Return how long the last answer took, or how long this one is awaited."""
        return self._lag_s if self.answered else max(self._lag_s, now_s - self._asked_at_s)

    def current_task(self) -> "asyncio.Task[Any] | None":
        """Return the asyncio task that runs now."""
        return asyncio.current_task(self._loop)

    def stack(self) -> Any:
        """Return the frames of the loop's thread."""
        frames = sys._current_frames()  # noqa: SLF001 - the documented way
        return frames_of_stack(frames.get(self._ident))

    def use(self) -> ThreadUse | None:
        """Return what the loop's thread has used."""
        return thread_use(self._native_id)

    def _answer(self) -> None:
        self._lag_s, self.answered = self._clock.now_s() - self._asked_at_s, True
