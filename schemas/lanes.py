"""Threads for the database, so that the event loop never waits for a server.

A lane runs one call after another. A simulation passes lanes of its own that run the call on the loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Lane(Protocol):
    """Runs a blocking call away from the event loop."""

    def __call__(self, call: Callable[[], Result]) -> Awaitable[Result]:
        """Return what `call` returns, or raise what it raises."""
        ...


class ThreadLane:
    """A lane with threads of its own; with one thread its calls keep their order."""

    def __init__(self, title: str, threads: int = 1) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=title)

    def __call__(self, call: Callable[[], Result]) -> Awaitable[Result]:
        """Run `call` on a thread of the lane."""
        return asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self, *, wait: bool = True) -> None:
        """Drop the calls that have not begun; wait for the running one, unless it may never end."""
        self._pool.shutdown(wait=wait, cancel_futures=True)


class InlineLane:
    """A lane of the calling thread, for a loop that has a thread of its own."""

    async def __call__(self, call: Callable[[], Result]) -> Result:
        """Run `call` here and now."""
        return call()
