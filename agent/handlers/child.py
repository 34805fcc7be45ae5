"""A lane that is a child process, for parsing that would hold the interpreter's lock and so the heartbeat."""

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from agent import parent

Result = TypeVar("Result")

LEAVE_S = 1.0


class ChildLane:
    """Runs picklable calls in one child, started at the first call and again after it died."""

    def __init__(self) -> None:
        self._pools: list[ProcessPoolExecutor] = []
        self._shared: ProcessPoolExecutor | None = None
        self._ending: list[threading.Thread] = []
        self._alone = asyncio.Lock()
        self._closed = False

    async def __call__(self, call: Callable[[], Result]) -> Result:
        """Return what `call` returns; one whose child dies has a second one for itself, whose death is raised as BrokenProcessPool.

        A call that is cancelled may never end, and ends with its child; those behind it have children of their own.
        """
        pool = self._shared = self._shared or self._open()
        try:
            return await _run(pool, call)
        except BrokenProcessPool:
            self._end(pool)
            if self._closed:
                raise
        except asyncio.CancelledError:
            self._end(pool)
            raise
        async with self._alone:
            own = self._open()
            try:
                return await _run(own, call)
            finally:
                self._end(own)

    def close(self) -> None:
        """End the children, in the middle of a call too: the interpreter would wait for them at its exit.

        It also wakes the threads that see to them, and fails with a traceback on one that is just ending: they are waited for.
        """
        self._closed = True
        for pool in list(self._pools):
            self._end(pool)
        for thread in self._ending:
            thread.join(LEAVE_S)

    def _open(self) -> ProcessPoolExecutor:
        # A fork would copy the threads' locks; a spawned child imports only what the call needs.
        # It waits on a pipe whose other end it holds itself, so nothing but the kernel tells it that the agent was killed.
        spawn = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=parent.tie, initargs=(os.getpid(),))
        self._pools.append(pool)
        return pool

    def _end(self, pool: ProcessPoolExecutor) -> None:
        if pool not in self._pools:
            return
        self._pools.remove(pool)
        self._shared = None if self._shared is pool else self._shared
        children = list((pool._processes or {}).values())  # noqa: SLF001 - before Python 3.14 there is no other way to them
        ending = (*self._ending, pool._executor_manager_thread)  # noqa: SLF001 - nor to this
        self._ending = [one for one in ending if isinstance(one, threading.Thread) and one.is_alive()]
        pool.shutdown(wait=False)  # without its child it fails the calls that wait in it: each of them has another try
        for child in children:
            child.kill()


async def _run(pool: ProcessPoolExecutor, call: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(pool, call)
