"""An event loop on virtual time. Nothing waits: when nothing is ready, the clock jumps to the next timer.

Of all callbacks that are ready a seeded draw takes the next, so that no order is taken for granted. A callback belongs to the
simulated process in whose context it was made: one that is frozen does not run it now, one that was killed never does.
"""

import asyncio
import contextlib
import heapq
import random
from asyncio import events
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

EPOCH_S = 1_800_000_000.0  # the virtual clock's zero, in seconds since 1970
_KEPT = 2000


class Process:
    """A program, or one thread of it, that can be frozen and killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.stops: list[list[float]] = []  # from when to when it stood still
        self.waiting: list[events.Handle] = []

    def stood_still(self, from_s: float, to_s: float) -> bool:
        """Return whether it was frozen at some time between these two."""
        return any(begin <= to_s and end >= from_s for begin, end in self.stops)


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class StuckError(Exception):
    """Nothing is ready and no timer is set."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks of simulated processes, one at a time."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._now_s = 0.0
        self._rng = rng
        self._ready: list[events.Handle] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self.steps = 0
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Return the virtual time."""
        return self._now_s

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that belongs to a process, with all that it will start."""
        context = copy_context()
        context.run(PROCESS.set, process)
        return self.create_task(work, name=process.name, context=context)

    def freeze(self, process: Process) -> None:
        """Let nothing of a process run."""
        if not process.frozen:
            process.frozen = True
            process.stops.append([self._now_s, float("inf")])

    def thaw(self, process: Process) -> None:
        """Let a process go on."""
        if process.frozen:
            process.frozen = False
            process.stops[-1][1] = self._now_s
            self._ready += process.waiting
            process.waiting = []

    def bury(self) -> None:
        """End every task that is left, as the end of the machine would; none of them notices."""
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(BaseException):  # what a coroutine does while it is closed concerns nobody
                    task.get_coro().close()
        self._tasks.clear()
        self._ready.clear()
        self._scheduled.clear()  # type: ignore[attr-defined]
        self.close()

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        # A killed process's tasks must not be collected: their `finally` would run.
        if len(self._tasks) > _KEPT:
            self._tasks = [task for task in self._tasks if not task.done()]
        task = asyncio.Task(work, loop=loop, **options)
        self._tasks.append(task)
        return task

    def _run_once(self) -> None:
        timers = self._scheduled  # type: ignore[attr-defined]
        if not self._ready:
            self._jump(timers)
        while timers and timers[0]._when <= self._now_s:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            if not timer._cancelled:
                self._ready.append(timer)
        if self._ready:
            self._run(self._draw())

    def _jump(self, timers: list[Any]) -> None:
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if not timers:
            raise StuckError
        self._now_s = max(self._now_s, timers[0]._when)

    def _draw(self) -> events.Handle:
        index = int(self._rng.random() * len(self._ready))
        self._ready[index], self._ready[-1] = self._ready[-1], self._ready[index]
        return self._ready.pop()

    def _run(self, handle: events.Handle) -> None:
        process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
        if handle._cancelled or (process is not None and not process.alive):
            return
        if process is not None and process.frozen:
            process.waiting.append(handle)
            return
        self.steps += 1
        handle._run()

    def _write_to_self(self) -> None:
        """There is no other thread to be woken by."""


class VirtualClock:
    """The loop's time, as the product sees it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now_s(self) -> float:
        """Return the virtual time."""
        return self._loop.time()

    def utc_s(self) -> float:
        """Return the virtual time in seconds since 1970."""
        return EPOCH_S + self._loop.time()

    async def sleep(self, delay_s: float) -> None:
        """Wait."""
        await asyncio.sleep(delay_s)
