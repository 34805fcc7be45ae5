"""The processes of an agent's handlers: started on demand and reused.

A process may die because of an earlier attempt, which left memory, threads or broken state behind.
So the attempt is run once more in a new process, unless its process was new. If that process dies
too, the attempt has failed. What must not run twice has no second process.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.processes.process import ProcessDiedError, ProcessHandler
from docllm.schemas.codes import Code

log = logging.getLogger(__name__)

MAX_RUNS = 500  # after so many, a process is replaced, because handlers leak memory


class PooledProcess(Protocol):
    """A process that runs one attempt after another."""

    runs: int
    usable: bool

    async def run(self, context: AttemptContext) -> Any:
        """Run an attempt; return the handler's result, or raise its error."""
        ...

    def worn(self) -> bool:
        """Return whether what earlier attempts left behind could make the next attempt fail."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...

    async def close(self) -> None:
        """End it and wait for its end."""
        ...


class HandlerProcesses:
    """Runs attempts in processes; there are never more than `max_processes`, one for each slot.

    `check` imports a handler, given by its path, and raises ConfigError if it cannot be used.
    """

    def __init__(
        self,
        *,
        check: Callable[[str], None],
        start: Callable[[ProcessHandler], Awaitable[PooledProcess]],
        max_processes: int,
    ) -> None:
        self._check = check
        self._checked: set[str] = set()
        self._start = start
        self._max_processes = max_processes
        self._idle: dict[ProcessHandler, list[PooledProcess]] = {}
        self._running = 0

    def require_usable(self, path: str) -> None:
        """Check a handler, once. Raises ConfigError if it cannot be used."""
        if path not in self._checked:
            self._check(path)
            self._checked.add(path)

    async def run(self, handler: ProcessHandler, context: AttemptContext) -> Any:
        """Return the result of a handler, or raise its error.

        Raises ProcessDiedError, and ProcessUnusableError if no process can be started.
        """
        try:
            return await self._run(handler, context, new=False)
        except ProcessDiedError as error:
            if not error.was_used or context.rules.on_loss == "dead":
                raise
            log.warning(
                "%s: %s; earlier tasks ran in it too, so the task runs again in a new one",
                context.name,
                error,
                extra={"code": Code.HANDLER_FAILS},
            )
        context.begin_again()
        return await self._run(handler, context, new=True)

    async def run_in_own_process(self, handler: ProcessHandler, context: AttemptContext) -> Any:
        """Return the result of a handler in a new process, in which nothing else ever runs.

        Raises what `run` raises.
        """
        return await self._run(handler, context, new=True, keep=False)

    async def _run(
        self, handler: ProcessHandler, context: AttemptContext, *, new: bool, keep: bool = True
    ) -> Any:
        self._running += 1
        process = None
        try:
            process = await self._take(handler, new=new)
            return await process.run(context)
        except ProcessDiedError as error:
            error.was_used = process is not None and process.runs > 1
            if not error.was_used:
                log.warning("%s: %s", context.name, error, extra={"code": Code.HANDLER_FAILS})
            raise
        finally:
            self._running -= 1
            if process is not None:
                await self._give_back(handler, process, keep=keep)

    async def _take(self, handler: ProcessHandler, *, new: bool) -> PooledProcess:
        idle = self._idle.get(handler, [])
        if idle and not new:
            return idle.pop()
        await self._make_room()
        return await self._start(handler)

    async def _make_room(self) -> None:
        """End a process that runs nothing, if a new one would be one too many."""
        if self._running + sum(map(len, self._idle.values())) > self._max_processes:
            longest = max(self._idle.values(), key=len)
            await longest.pop(0).close()

    async def _give_back(
        self, handler: ProcessHandler, process: PooledProcess, *, keep: bool
    ) -> None:
        if keep and process.usable and process.runs < MAX_RUNS and not process.worn():
            self._idle.setdefault(handler, []).append(process)
        else:
            process.kill()
            await process.close()
