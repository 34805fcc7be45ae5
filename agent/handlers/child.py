"""A lane that is a child process, for parsing that would hold the interpreter's lock and so the heartbeat."""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import TypeVar

from agent import parent

Result = TypeVar("Result")

LEAVE_S = 1.0
LIMIT_S = 10.0  # of one call: what takes longer would keep all others from their turn


class ChildLane:
    """Runs picklable calls in a child process, one at a time.

    The child is started at the first call, and again after it died. Since calls take turns, it is
    known whose time runs, and which call brought the child down.
    """

    def __init__(self, *, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._pools: list[ProcessPoolExecutor] = []
        self._shared: ProcessPoolExecutor | None = None
        self._ending: list[threading.Thread] = []
        self._turn = asyncio.Lock()
        self._closed = False

    async def __call__(self, call: Callable[[], Result]) -> Result:
        """Return what `call` returns.

        Raises TimeoutError for a call that takes longer than the limit, and BrokenProcessPool for
        one that brings down two children. Either ends the child, as a cancelled call does; the next
        call has a new one.
        """
        async with self._turn:
            try:
                return await self._run(call)
            except BrokenProcessPool:
                if self._closed:
                    raise
            return await self._run(call)  # the child may have died before

    async def _run(self, call: Callable[[], Result]) -> Result:
        if self._closed:
            raise BrokenProcessPool("the lane is closed")
        is_new = self._shared is None
        pool = self._shared = self._shared or self._open()
        run = partial(asyncio.get_running_loop().run_in_executor, pool)
        try:
            if is_new:
                await run(os.getpid)  # its start is not the call's time
            async with asyncio.timeout(self._limit_s):
                return await run(call)
        except (BrokenProcessPool, TimeoutError, asyncio.CancelledError):
            self._end(pool)
            raise

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
        pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=_begin, initargs=(os.getpid(),))
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
        pool.shutdown(wait=False)
        for child in children:
            child.kill()


def _begin(parent_pid: int) -> None:
    """Ignore Ctrl-C, which a terminal sends to the child too, and end with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent.tie(parent_pid)
