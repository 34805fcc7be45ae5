"""An event loop on virtual time: when nothing is ready, the clock jumps to the next timer.

Of all ready callbacks a seeded draw takes the next, so that no order is taken for granted. A
callback belongs to the simulated process in whose context it was made. A frozen process does not
run it now, a killed one never does.
"""

import asyncio
import contextlib
import heapq
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, TypeVarTuple

from docllm.agent.process.containment import contained_coroutine

Arguments = TypeVarTuple("Arguments")

# The virtual clock's zero, in seconds since 1970: a day of the provider's limits ends in most runs.
MIDNIGHT_S = 20.0
EPOCH_S = 20_834 * 86_400 - MIDNIGHT_S
_KEPT = 2000


class Process:
    """A program, or one thread of it, that can be frozen and killed."""

    def __init__(self, name: str, kill: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.kill = kill  # ends the whole program
        self.alive = True
        self.frozen = False
        self.stops: list[list[float]] = []  # the intervals in which it was frozen
        self.waiting: list[_Callback] = []

    def stood_still(self, from_s: float, to_s: float) -> bool:
        """Return whether it was frozen at some time between these two."""
        return any(begin <= to_s and end >= from_s for begin, end in self.stops)


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class StuckError(Exception):
    """Nothing is ready and no timer is set."""


class _Callback:
    """What asyncio calls a handle, with only what a simulation needs.

    A run makes some ten thousand of them.
    """

    __slots__ = ("args", "call", "context", "when_s")

    def __init__(
        self,
        call: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        when_s: float,
    ) -> None:
        self.call: Callable[..., object] | None = call
        self.args = args
        self.context = copy_context() if context is None else context
        self.when_s = when_s

    def cancel(self) -> None:
        self.call = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.call is None

    def when(self) -> float:
        return self.when_s


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks of simulated processes, one at a time."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._now_s = 0.0
        self._draw = rng.random
        self._due: list[_Callback] = []
        self._timers: list[tuple[float, int, _Callback]] = []
        self._numbers = count()
        self._tasks: list[asyncio.Task[Any]] = []
        self.steps = 0
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Return the virtual time."""
        return self._now_s

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task that belongs to a process, as does every task that it starts."""
        context = copy_context()
        context.run(PROCESS.set, process)
        return self.create_task(work, name=process.name, context=context)

    def freeze(self, process: Process) -> None:
        """Stop running a process's callbacks."""
        if not process.frozen:
            process.frozen = True
            process.stops.append([self._now_s, float("inf")])

    def thaw(self, process: Process) -> None:
        """Resume a process."""
        if process.frozen:
            process.frozen = False
            process.stops[-1][1] = self._now_s
            self._due += process.waiting
            process.waiting = []

    def bury(self) -> None:
        """End every remaining task as a machine's failure would; none of them notices."""
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                # What a coroutine does while it is closed does not matter.
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        self._tasks.clear()
        self._due.clear()
        self._timers.clear()
        self.close()

    def call_soon(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> Any:
        """Run a callback in one of the next turns."""
        handle = _Callback(callback, args, context, self._now_s)
        self._due.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> Any:
        """Run a callback at a time."""
        handle = _Callback(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> Any:
        """Run a callback after a delay."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any
    ) -> asyncio.Task[Any]:
        # A killed process's tasks must not be garbage-collected: their `finally` would run.
        if len(self._tasks) > _KEPT:
            self._tasks = [task for task in self._tasks if not task.done()]
        task = asyncio.Task(contained_coroutine(work), loop=loop, **options)
        self._tasks.append(task)
        return task

    def _run_once(self) -> None:
        due, timers = self._due, self._timers
        if not due:
            self._jump()
        while timers and timers[0][0] <= self._now_s:
            callback = heapq.heappop(timers)[2]
            if callback.call is not None:
                due.append(callback)
        while due and not self._stopping:  # type: ignore[attr-defined]
            index = int(self._draw() * len(due))
            due[index], due[-1] = due[-1], due[index]
            callback = due.pop()
            if callback.call is not None:
                self._run(callback)

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2].call is None:
            heapq.heappop(timers)
        if not timers:
            raise StuckError
        self._now_s = max(self._now_s, timers[0][0])

    def _run(self, callback: _Callback) -> None:
        process = callback.context.get(PROCESS)
        if process is not None:
            if not process.alive:
                return
            if process.frozen:
                process.waiting.append(callback)
                return
        self.steps += 1
        try:
            callback.context.run(callback.call, *callback.args)  # type: ignore[arg-type]
        except (SystemExit, KeyboardInterrupt):
            raise
        # As in asyncio's own loop, the handler decides.
        except BaseException as error:  # noqa: BLE001
            if process is None or process.alive:
                self.call_exception_handler(
                    {"message": "a callback failed", "exception": error, "handle": callback}
                )

    def _write_to_self(self) -> None:
        """Do nothing: there is no other thread to wake."""

    def _timer_handle_cancelled(self, handle: Any) -> None:
        """Do nothing: cancelled timers are skipped when their time comes."""


class VirtualClock:
    """The loop's time as one program sees it.

    It rises like everybody's, but the date may be wrong.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.wrong_by_s = 0.0

    def now_s(self) -> float:
        """Return the virtual time."""
        return self._loop.time()

    def utc_s(self) -> float:
        """Return the program's idea of the time in seconds since 1970."""
        return EPOCH_S + self._loop.time() + self.wrong_by_s

    async def sleep(self, delay_s: float) -> None:
        """Wait."""
        await asyncio.sleep(delay_s)
