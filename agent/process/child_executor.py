"""An executor that is a child process, for work that holds the interpreter's lock.

Within the agent, such work would stop the heartbeat.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from docllm.agent.process import child_process

if TYPE_CHECKING:  # they are loaded with the first child
    from concurrent.futures import ProcessPoolExecutor

T = TypeVar("T")

LEAVE_S = 1.0
LIMIT_S = 10.0  # the limit of one call; all other calls wait behind it


class ChildExecutor:
    """Runs picklable calls one after another in a child process.

    The child is started at the first call, and again after it died. Calls run one at a time, so
    that a time limit applies to one call and a crash has one known cause.
    """

    def __init__(self, *, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._pools: list[ProcessPoolExecutor] = []
        self._shared: ProcessPoolExecutor | None = None
        self._ending: list[threading.Thread] = []
        self._turn = asyncio.Lock()
        self._closed = False

    async def __call__(self, call: Callable[[], T]) -> T:
        """Return the result of `call`.

        Raises TimeoutError for a call that exceeds its limit, and BrokenExecutor for a call that
        brings down two children. In both cases the child ends, as it does when a call is cancelled.
        The calls behind it get a new child.
        """
        async with self._turn:
            try:
                return await self._run(call)
            except BrokenExecutor:
                if self._closed:
                    raise
            return await self._run(call)  # an earlier call may have killed the child

    async def _run(self, call: Callable[[], T]) -> T:
        if self._closed:
            raise BrokenExecutor("the executor is closed")
        is_new = self._shared is None
        pool = self._shared = self._shared or self._open()
        run = partial(asyncio.get_running_loop().run_in_executor, pool)
        try:
            if is_new:
                await run(os.getpid)  # the start of the child does not count as the call's time
            async with asyncio.timeout(self._limit_s):
                return await run(call)
        except (BrokenExecutor, TimeoutError, asyncio.CancelledError):
            self._end(pool)
            raise

    def close(self) -> None:
        """End the children, even during a call.

        Otherwise the interpreter would wait for them at its exit. This also waits for the threads
        that manage the children: the interpreter wakes such threads at its exit, and fails with a
        traceback if one is just ending.
        """
        self._closed = True
        for pool in list(self._pools):
            self._end(pool)
        for thread in self._ending:
            thread.join(LEAVE_S)

    def _open(self) -> "ProcessPoolExecutor":
        import multiprocessing  # noqa: PLC0415 - see above
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415

        # A fork would copy the threads' locks; a spawned child imports only what the call needs.
        # The child waits on a pipe whose other end it holds itself, so only the kernel can tell it
        # that the agent was killed.
        spawn = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=_begin, initargs=(os.getpid(),))
        self._pools.append(pool)
        return pool

    def _end(self, pool: "ProcessPoolExecutor") -> None:
        if pool not in self._pools:
            return
        self._pools.remove(pool)
        self._shared = None if self._shared is pool else self._shared
        # Before Python 3.14, no public attribute gives access to the processes.
        children = list((pool._processes or {}).values())  # noqa: SLF001
        threads = (*self._ending, pool._executor_manager_thread)  # noqa: SLF001 - nor to this
        self._ending = [
            thread
            for thread in threads
            if isinstance(thread, threading.Thread) and thread.is_alive()
        ]
        pool.shutdown(wait=False)
        for child in children:
            child.kill()


def _begin(parent_pid: int) -> None:
    """Ignore Ctrl-C, which a terminal also sends to the child; end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child_process.tie(parent_pid)
