"""Limits the effect of a handler's failure to its own attempt.

If memory runs out, the agent drains.
"""

import asyncio
from typing import Any, NoReturn

from schemas.clock import Clock
from schemas.errors import DocllmError
from schemas.untrusted import is_interrupt

AGAIN_WITHIN_S = 60.0


def is_to_end(error: BaseException, attempt: "asyncio.Task[Any] | None") -> bool:
    """Return whether `error` ends the attempt from outside, not as a failure of its own.

    From outside means that its task is cancelled or dropped, or that Ctrl-C was pressed. Libraries
    and handlers raise the same classes themselves, and then the error is a failure like any other.
    """
    if isinstance(error, asyncio.CancelledError):
        return attempt is None or attempt.cancelling() > 0
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


class OutOfMemoryError(DocllmError):
    """Memory ran out again and again: the agent is too small for what it runs."""


class MemoryWatch:
    """Drains the agent if memory runs out twice within a minute.

    Code that meets a MemoryError over one item fails that item and calls `note`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s: float | None = None
        self._out = asyncio.Event()

    def note(self, error: BaseException) -> None:
        """Count a MemoryError, also inside a group of errors; ignore any other error."""
        if not _is_memory_error(error):
            return
        now_s, last_s = self._clock.now_s(), self._last_s
        self._last_s = now_s
        if last_s is not None and now_s - last_s <= AGAIN_WITHIN_S:
            self._out.set()

    async def run(self) -> NoReturn:
        """Wait until memory has run out twice within a minute, then raise DocllmError.

        The error drains the agent.
        """
        await self._out.wait()
        raise OutOfMemoryError(
            "memory ran out twice within a minute, so the agent drained; lower --slots, give it more memory, "
            "or look for a handler that takes too much: the log names the tasks"
        )


def _is_memory_error(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_memory_error, error.exceptions))
    return isinstance(error, MemoryError)
