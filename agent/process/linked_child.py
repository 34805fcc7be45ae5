"""A child process that runs a module of docllm's own, and the link to it: start, end, reason.

Handlers and converters run in such children. What passes over a link is defined where it is used,
because they differ in trust.
"""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Self

from docllm.agent.process import child_process
from docllm.schemas.runtime.executors import Executor

START_S = 60.0  # how long a child may take until it is ready
EXIT_S = 5.0  # how long a child that has closed its link may take to exit


@dataclass(slots=True, kw_only=True)
class LinkedChild:
    """A child and the agent's end of its link.

    The child leads a session and a group of its own, so both have its number.
    """

    popen: "subprocess.Popen[bytes]"
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    closed: bool = False

    @classmethod
    async def start(
        cls, module: str, *arguments: object, thread: Executor, confined: bool = False
    ) -> Self:
        """Start a child on `thread`, with which the kernel ends it. Raises OSError.

        Its arguments are the descriptor of its link, and `arguments`. A `confined` child gets no
        variable that could hold a secret, and prints nothing.
        """
        popen, ours = await thread(partial(_start, module, arguments, confined=confined))
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(popen=popen, reader=reader, writer=writer)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self.popen.pid

    async def wait_ready(self, ready: Awaitable[None]) -> None:
        """Wait for `ready`; end the child if that fails. Raises TimeoutError after START_S."""
        try:
            async with asyncio.timeout(START_S):
                await ready
        except BaseException:
            await self.close()
            raise

    def notice_end(self) -> None:
        """End the link of a child that has died while a process that it started keeps it open."""
        if not child_process.BY_KERNEL:
            return  # only Linux can report the exit without reaping the process
        with suppress(ChildProcessError):  # it was waited for already
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                self.reader.feed_eof()

    def kill(self) -> None:
        """End the child and those that it started."""
        # Until it is waited for, no other group can have its number.
        if self.popen.returncode is None:
            self._kill_group()

    async def close(self) -> None:
        """End the child and wait for its end."""
        self.kill()
        self.closed = True
        self.writer.close()
        await asyncio.to_thread(self.popen.wait)

    async def exit_code(self) -> int | None:
        """Return how the child ended, as `name_of_end` takes it; None if it has only closed."""
        try:
            return await asyncio.to_thread(self._wait)
        except subprocess.TimeoutExpired:
            return None

    def _wait(self) -> int:
        """Wait for the end of the child; end those that it has left behind."""
        code = self.popen.wait(EXIT_S)
        self._kill_group()
        return code

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


def name_of_end(code: int) -> str:
    """Return the name of the signal that ended a process, or its exit code."""
    if code >= 0:
        return f"exit code {code}"
    return signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"


def _start(
    module: str, arguments: Sequence[object], *, confined: bool
) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """Start a child; return it with the agent's end of its link.

    All of it happens on one thread, so that a cancelled start cannot close a descriptor too early.
    """
    ours, theirs = socket.socketpair()
    output = subprocess.DEVNULL if confined else None
    try:
        popen = child_process.start(
            (*child_process.INTERPRETER, module, *map(str, (theirs.fileno(), *arguments))),
            stdout=output,
            stderr=output,
            keep=(theirs.fileno(),),
            bare=confined,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    return popen, ours
