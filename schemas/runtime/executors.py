"""Executors for blocking calls, so that the event loop never waits for a server.

An executor runs one call after another. A simulation passes executors that run the call on the
event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Executor(Protocol):
    """Runs a blocking call away from the event loop."""

    def __call__(self, call: Callable[[], T]) -> Awaitable[T]:
        """Return the result of `call`, or raise its error."""
        ...


class ThreadExecutor:
    """An executor with threads of its own; with one thread its calls keep their order."""

    def __init__(self, title: str, *, threads: int = 1) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=title)

    def __call__(self, call: Callable[[], T]) -> Awaitable[T]:
        """Run `call` on a thread of the executor."""
        return asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self, *, wait: bool = True) -> None:
        """Drop the calls that have not begun; wait for the running call.

        With `wait=False`, it does not wait for a call that may never end.
        """
        self._pool.shutdown(wait=wait, cancel_futures=True)


class InlineExecutor:
    """An executor on the calling thread, for a loop that has a thread of its own."""

    async def __call__(self, call: Callable[[], T]) -> T:
        """Run `call` here and now."""
        return call()
