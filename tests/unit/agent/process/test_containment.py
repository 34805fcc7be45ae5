"""The effect of a handler's failure on its agent."""

import asyncio
import warnings
from collections.abc import Awaitable, Callable

import pytest

from docllm.agent.process.containment import (
    AGAIN_WITHIN_S,
    MemoryWatch,
    attempt_of,
    cancel,
    enter_handler,
    is_to_end,
    leaf_errors,
    new_event_loop,
)
from docllm.schemas.errors import DocllmError
from docllm.schemas.text.untrusted import ContainedError


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
        current = asyncio.current_task()
        other = asyncio.ensure_future(asyncio.Event().wait())
        cancel(other)
        answers = [
            is_to_end(error, current)
            for error in (asyncio.CancelledError(), GeneratorExit(), KeyboardInterrupt())
        ]
        return [
            *answers,
            is_to_end(asyncio.CancelledError(), other),
            is_to_end(GeneratorExit(), other),
        ]

    assert asyncio.run(judged()) == [False, False, False, True, True]


def test_a_handler_that_cancels_its_own_attempt_has_failed() -> None:
    """Nobody asked the agent to drain; uncounted, the task would run again at once, for ever."""

    async def judged() -> bool:
        current = asyncio.current_task()
        assert current is not None
        current.cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError as error:
            return is_to_end(error, current)
        raise AssertionError("it is cancelled")

    assert not asyncio.run(judged())


def test_groups_may_be_nested_deeper_than_the_stack() -> None:
    """A walk that recursed would fail, and the failure would be taken for a bug of ours."""
    error: Exception = MemoryError()
    for _ in range(5_000):
        error = ExceptionGroup("g", [error])

    assert [type(leaf) for leaf in leaf_errors(error)] == [MemoryError]
    assert ended((100.0, error), (101.0, error))


async def leave(code: int) -> None:
    raise SystemExit(code)


async def interrupt() -> None:
    raise KeyboardInterrupt


async def in_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(leave(3))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: asyncio.gather(leave(0)), "SystemExit: 0"),
        (lambda: asyncio.create_task(interrupt()), "KeyboardInterrupt: "),
        (in_group, "SystemExit: 3"),
    ],
)
def test_no_task_of_a_handler_ends_the_event_loop(
    act: Callable[[], Awaitable[object]], message: str
) -> None:
    """The library passes both on to the loop, which ends the agent and every call in it."""

    async def handle() -> list[str]:
        enter_handler(asyncio.current_task())
        with pytest.raises((ContainedError, ExceptionGroup)) as raised:
            await act()
        return [str(leaf) for leaf in leaf_errors(raised.value)]

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(handle()) == [message]


def test_a_handlers_task_that_is_cancelled_before_it_begins_logs_nothing() -> None:
    """The task's coroutine is closed as asyncio would close it."""

    async def handle() -> bool:
        enter_handler(asyncio.current_task())
        part = asyncio.create_task(interrupt())
        part.cancel()
        await asyncio.wait([part])
        return part.cancelled()

    with warnings.catch_warnings(), asyncio.Runner(loop_factory=new_event_loop) as runner:
        warnings.simplefilter("error")
        assert runner.run(handle())


def test_a_task_of_a_handler_belongs_to_its_attempt() -> None:
    """Tasks of the handler's tasks belong to it too; a task of no handler belongs to itself."""
    owners: list[asyncio.Task[object]] = []

    async def part() -> None:
        task = asyncio.current_task()
        assert task is not None
        owners.append(attempt_of(task))

    async def parts() -> None:
        await part()
        await asyncio.create_task(part())

    async def attempt() -> None:
        enter_handler(asyncio.current_task())
        await asyncio.create_task(parts())

    async def run() -> bool:
        running = asyncio.create_task(attempt())
        await running
        await (other := asyncio.create_task(part()))
        return owners == [running, running, other]

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(run())
