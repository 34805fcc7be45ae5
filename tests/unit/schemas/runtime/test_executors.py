"""Executors run blocking calls, one after another if they have one thread."""

import asyncio
import threading
from functools import partial

import pytest

from docllm.schemas.runtime.executors import InlineExecutor, ThreadExecutor


def test_calls_of_one_thread_keep_their_order() -> None:
    """The event loop's thread runs none of them."""
    order: list[tuple[int, str]] = []

    def note(number: int) -> None:
        order.append((number, threading.current_thread().name))

    async def run() -> None:
        executor = ThreadExecutor("ledger")
        calls = [executor(partial(note, number)) for number in range(20)]
        await asyncio.gather(*calls)
        executor.close()

    asyncio.run(run())

    assert [number for number, _ in order] == list(range(20))
    assert {name.split("_")[0] for _, name in order} == {"ledger"}


def test_the_error_of_a_call_is_raised_where_it_is_awaited() -> None:
    """The executor takes further calls."""

    async def run() -> int:
        executor = ThreadExecutor("ledger")
        with pytest.raises(ValueError, match="no row"):
            await executor(_fail)
        answer = await executor(lambda: 7)
        executor.close()
        return answer

    assert asyncio.run(run()) == 7


def test_closing_drops_calls_that_have_not_begun() -> None:
    """Closing waits for the running call alone."""
    begun, go_on = threading.Event(), threading.Event()
    ran: list[str] = []

    def first() -> None:
        begun.set()
        go_on.wait()
        ran.append("first")

    async def run() -> bool:
        executor = ThreadExecutor("ledger")
        running = asyncio.ensure_future(executor(first))
        dropped = asyncio.ensure_future(executor(lambda: ran.append("second")))
        await asyncio.to_thread(begun.wait)
        executor.close(wait=False)
        go_on.set()
        await running
        await asyncio.wait([dropped])
        return dropped.cancelled()

    assert asyncio.run(run())
    assert ran == ["first"]


def test_an_inline_executor_uses_the_calling_thread() -> None:
    """A loop with a thread of its own may block."""
    executor = InlineExecutor()

    assert asyncio.run(executor(threading.current_thread)) is threading.current_thread()


def _fail() -> int:
    raise ValueError("no row")
