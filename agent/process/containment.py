"""Limits the effect of a handler's failure to its own attempt.

If memory runs out, the agent drains.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextvars import ContextVar
from typing import Any, NoReturn
from weakref import WeakSet

import uvloop

from docllm.schemas.codes import Code
from docllm.schemas.errors import DocllmError
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.text.untrusted import ContainedError, describe_error, is_interrupt

AGAIN_WITHIN_S = 60.0

_cancelled: WeakSet["asyncio.Task[Any]"] = WeakSet()
# The attempt whose handler runs in the present context.
_in_handler: ContextVar["asyncio.Task[Any] | None"] = ContextVar("in_handler", default=None)


def cancel(attempt: "asyncio.Task[Any]") -> None:
    """Cancel an attempt from outside; only such a cancellation ends it uncounted."""
    _cancelled.add(attempt)
    attempt.cancel()


def is_to_end(error: BaseException, attempt: "asyncio.Task[Any] | None") -> bool:
    """Return whether docllm ended the attempt; otherwise the attempt has failed.

    docllm ends attempts by `cancel`, by closing the coroutine, and on Ctrl-C.

    The exception's class alone does not decide: libraries and handlers may raise the same classes,
    and a handler may cancel its own task.
    """
    if isinstance(error, asyncio.CancelledError):
        return attempt is None or attempt in _cancelled
    if isinstance(error, GeneratorExit):
        # A dropped coroutine is closed by another task.
        return attempt is None or current_task() is not attempt
    return is_interrupt(error)


def current_task() -> "asyncio.Task[Any] | None":
    """Return the current task, None outside an event loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def enter_handler(attempt: "asyncio.Task[Any] | None") -> None:
    """Contain the tasks that `attempt`, the current task, starts from now on.

    Called when its handler begins.
    """
    _in_handler.set(attempt)


def has_had_handler() -> bool:
    """Return whether a handler has begun in the present context."""
    return _in_handler.get() is not None


def attempt_of(task: "asyncio.Task[Any]") -> "asyncio.Task[Any]":
    """Return the attempt whose handler started `task`; without one, `task` itself.

    Any thread may call it.
    """
    coro = task.get_coro()
    return coro.attempt if isinstance(coro, _ContainedTask) else task


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop that no task of a handler can end.

    asyncio ends the loop, and with it the agent, when a task raises SystemExit or
    KeyboardInterrupt.
    """
    loop = uvloop.new_event_loop()
    loop.set_task_factory(_make_task)
    return loop


def _make_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> "asyncio.Task[Any]":
    return asyncio.Task(contained_coroutine(coro), loop=loop, **options)


def contained_coroutine(coro: Any) -> Any:
    """Return the coroutine of a new task; one that a handler starts cannot end the event loop."""
    attempt = _in_handler.get()
    return coro if attempt is None else _ContainedTask(coro, attempt=attempt)


class _ContainedTask(Coroutine[Any, Any, Any]):
    """A coroutine that a handler runs as a task.

    Errors that would end the event loop become an Exception.
    """

    def __init__(self, coro: Coroutine[Any, Any, Any], *, attempt: "asyncio.Task[Any]") -> None:
        self._coro = coro
        self.attempt = attempt

    def __await__(self) -> Generator[Any, Any, Any]:
        raise AssertionError("only a task runs it")

    def send(self, value: Any, /) -> Any:
        return self._step(self._coro.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._coro.throw, *error)

    def close(self) -> None:
        self._coro.close()

    def _step(self, step: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return step(*arguments)
        except (SystemExit, KeyboardInterrupt) as error:
            if is_interrupt(error):
                raise
            raise ContainedError(describe_error(error)) from error


def leaf_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors that were raised together; an error that is no group is the only one.

    Groups may be nested deeper than the interpreter's stack.
    """
    unvisited = [error]
    while unvisited:
        raised = unvisited.pop()
        if isinstance(raised, BaseExceptionGroup):
            unvisited.extend(reversed(raised.exceptions))
        else:
            yield raised


class OutOfMemoryError(DocllmError):
    """Memory ran out repeatedly: the agent has too little memory for its tasks."""

    code = Code.MEMORY_FULL


class MemoryWatch:
    """Drains the agent if memory runs out twice within a minute.

    Code that meets a MemoryError over one item fails that item and calls `note`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_at_s: float | None = None
        self._out = asyncio.Event()

    def note(self, error: BaseException) -> None:
        """Count a MemoryError, also inside a group of errors; ignore any other error."""
        if not any(isinstance(leaf, MemoryError) for leaf in leaf_errors(error)):
            return
        now_s, last_at_s = self._clock.now_s(), self._last_at_s
        self._last_at_s = now_s
        if last_at_s is not None and now_s - last_at_s <= AGAIN_WITHIN_S:
            self._out.set()

    async def run(self) -> NoReturn:
        """Wait until memory has run out twice within a minute, then raise DocllmError.

        The error drains the agent.
        """
        await self._out.wait()
        raise OutOfMemoryError(
            "memory ran out twice within a minute, so the agent drained; lower --slots, give the "
            "agent more memory, or find the handler that takes too much (the log names its tasks)"
        )
