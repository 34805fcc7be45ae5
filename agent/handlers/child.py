"""A lane that is a child process, for parsing that would hold the interpreter's lock and so the heartbeat."""

import asyncio
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from agent import parent

Result = TypeVar("Result")


class ChildLane:
    """Runs picklable calls in one child, started at the first call and again after it died."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def __call__(self, call: Callable[[], Result]) -> Result:
        """Return what `call` returns; a child that dies is replaced once, then its death is raised as BrokenProcessPool."""
        try:
            return await self._run(call)
        except BrokenProcessPool:
            self.close()
            return await self._run(call)

    async def _run(self, call: Callable[[], Result]) -> Result:
        if self._pool is None:
            # A fork would copy the threads' locks; a spawned child imports only what the call needs.
            # It waits on a pipe whose other end it holds itself, so nothing but the kernel tells it that the agent was killed.
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=parent.tie, initargs=(os.getpid(),))
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """End the child, in the middle of a call too: the interpreter would wait for it at its exit."""
        pool, self._pool = self._pool, None
        if pool is not None:
            children = list((pool._processes or {}).values())  # noqa: SLF001 - before Python 3.14 there is no other way to them
            pool.shutdown(wait=False, cancel_futures=True)
            for child in children:
                child.kill()
