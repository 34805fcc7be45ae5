"""The effect of a handler's failure on its agent."""

import asyncio

import pytest

from agent.containment import AGAIN_WITHIN_S, MemoryWatch, is_to_end
from schemas.errors import DocllmError


class HandClock:
    at_s = 100.0

    def now_s(self) -> float:
        return self.at_s

    def utc_s(self) -> float:
        raise AssertionError("no date is asked for")

    async def sleep(self, delay_s: float) -> None:
        raise AssertionError("nothing here waits")


def ended(*notes: tuple[float, BaseException]) -> bool:
    """Return whether the watch ends the agent after these errors at these times."""
    clock = HandClock()
    watch = MemoryWatch(clock)
    for at_s, error in notes:
        clock.at_s = at_s
        watch.note(error)

    async def run() -> bool:
        running = asyncio.ensure_future(watch.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if not running.done():
            running.cancel()
            return False
        with pytest.raises(DocllmError, match="memory ran out twice"):
            running.result()
        return True

    return asyncio.run(run())


def test_memory_that_runs_out_twice_within_a_minute_ends_the_agent() -> None:
    """Two items that exhaust the memory within a minute end the agent: it is too small.

    One item that is too large fails alone.
    """
    grouped = BaseExceptionGroup("both", [ValueError(), MemoryError()])

    assert ended((100.0, MemoryError()), (100.0 + AGAIN_WITHIN_S, grouped))
    assert not ended((100.0, MemoryError()))
    assert not ended((100.0, MemoryError()), (101.0 + AGAIN_WITHIN_S, MemoryError()))
    assert not ended((100.0, MemoryError()), (101.0, ValueError()))


def test_only_the_end_from_outside_ends_an_attempt() -> None:
    """Only an end from outside ends an attempt.

    A handler may raise the errors of asyncio and the interpreter: a cancellation, a closed
    coroutine, an interrupt.
    """

    async def judged() -> list[bool]:
        mine = asyncio.current_task()
        other = asyncio.ensure_future(asyncio.Event().wait())
        other.cancel()
        found = [is_to_end(error, mine) for error in (asyncio.CancelledError(), GeneratorExit(), KeyboardInterrupt())]
        return [*found, is_to_end(asyncio.CancelledError(), other), is_to_end(GeneratorExit(), other)]

    assert asyncio.run(judged()) == [False, False, False, True, True]
