"""Starts the processes of handlers, and watches what they use."""

import asyncio
import json
import logging
import subprocess
from functools import partial

from docllm.agent.handlers.processes.process import (
    HandlerProcess,
    ProcessHandler,
    ProcessUnusableError,
)
from docllm.agent.process import child_process
from docllm.agent.process.linked_child import START_S, LinkedChild
from docllm.agent.process.use import Use, use_of
from docllm.schemas.codes import Code
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.executors import Executor
from docllm.schemas.text.wording import one_line

log = logging.getLogger(__name__)

WATCH_S = 0.25
_PROGRAM = "docllm.agent.handlers.processes.program"
_TRIAL = "docllm.agent.handlers.trial"


class ProcessStarter:
    """Starts processes on a thread of its own, with which the kernel ends them.

    The kernel ends a child with the thread that has started it, so the thread lives as long as the
    agent.
    """

    def __init__(self, *, thread: Executor, clock: Clock) -> None:
        self._thread = thread
        self._clock = clock
        self._alive: set[HandlerProcess] = set()
        self._watch: asyncio.Task[None] | None = None

    async def __call__(self, handler: ProcessHandler) -> HandlerProcess:
        """Start a process and let it import its handler. Raises ProcessUnusableError."""
        try:
            child = await LinkedChild.start(
                _PROGRAM,
                handler.path,
                handler.memory_mb or 0,
                handler.frozen_s or 0,
                thread=self._thread,
            )
        except OSError as error:
            raise ProcessUnusableError(f"no process could be started: {error.strerror}") from error
        process = HandlerProcess(child, handler)
        self._alive.add(process)
        self._watch = self._watch or asyncio.get_running_loop().create_task(self._watch_all())
        try:
            await child.wait_ready(process.ready())
        except TimeoutError:
            text = f"the process of {handler.path} did not start within {START_S:.0f} s"
            raise ProcessUnusableError(text) from None
        return process

    async def close(self) -> None:
        """End all processes."""
        if self._watch is not None:
            self._watch.cancel()
        for process in list(self._alive):
            await process.close()

    async def _watch_all(self) -> None:
        while True:
            await self._clock.sleep(WATCH_S)
            try:
                await self._check_use()
            except Exception:
                log.exception(
                    "the processes of handlers were not looked at",
                    extra={"code": Code.INTERNAL_ERROR},
                )

    async def _check_use(self) -> None:
        """End processes that use more memory or more child processes than allowed."""
        self._alive = {process for process in self._alive if not process.child.closed}
        for process in self._alive:
            process.child.notice_end()
        busy = {process.child.pid: process for process in self._alive if not process.usable}
        if busy:
            used = await self._thread(partial(use_of, set(busy)))
            for pid, process in busy.items():
                process.check(used.get(pid, Use()))


def check(path: str) -> None:
    """Import a handler in a process of its own. Raises ConfigError if it cannot be used."""
    command = (*child_process.INTERPRETER, _TRIAL, path)
    try:
        done = subprocess.run(  # noqa: S603 - a program of our own
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=child_process.environment(),
            timeout=START_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{path} cannot be imported within {START_S:.0f} s") from None
    try:
        reasons = json.loads(done.stdout.splitlines()[-1])  # the module may print, too
    except (ValueError, IndexError):
        raise ConfigError(f"{path} ends its process while it is imported") from None
    if path in reasons:
        raise ConfigError(one_line(reasons[path]))
