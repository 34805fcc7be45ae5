"""The processes of a run's handlers: each can end without its agent."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from docllm.agent.handlers import Context
from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.calls.results import CallRefusedError, LeaseLostError, WaitedTooLongError
from docllm.agent.handlers.documents import DocumentError
from docllm.agent.handlers.faults import RemoteError, deciding_leaf, fault_of
from docllm.agent.handlers.processes.process import ProcessDiedError, ProcessHandler
from docllm.agent.handlers.registry import function_of
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock
from tests.simulation.handlers import HOST

START_S = 0.3
_OF_THE_AGENT = (CallRefusedError, DocumentError, LeaseLostError, WaitedTooLongError)


class SimProcess:
    """Runs one attempt after another, until a handler ends it."""

    def __init__(self, handler: Callable[[Context], Awaitable[Any]]) -> None:
        self._handler = handler
        self._ended = asyncio.get_running_loop().create_future()
        self._spoilt = False
        self.runs = 0
        self.usable = True

    async def run(self, context: AttemptContext) -> Any:
        """Run an attempt; return the handler's result, or raise its error."""
        self.runs += 1
        self.usable = False
        inside = contextvars.copy_context()
        inside.run(HOST.set, replace(HOST.get(), die=self._die, spoil=self._spoil))
        crash.reach("process.run_sent")
        if self._spoilt:
            raise ProcessDiedError("its process ended by SIGSEGV")
        run = asyncio.get_running_loop().create_task(
            _end_of(self._handler, context), context=inside
        )
        try:
            await asyncio.wait([run, self._ended], return_when=asyncio.FIRST_COMPLETED)
            if self._ended.done():
                raise ProcessDiedError("its process ended by SIGKILL")
        finally:
            run.cancel()
            await asyncio.wait([run])
        self.usable = True
        crash.reach("process.run_ended")
        result, error = run.result()
        if error is not None:
            raise error
        return result

    def worn(self) -> bool:
        """Return that it may run more attempts."""
        return False

    def kill(self) -> None:
        """End it."""
        self.usable = False

    async def close(self) -> None:
        """End it."""
        self.kill()

    def _spoil(self) -> None:
        self._spoilt = True

    def _die(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


def starter(clock: Clock) -> Callable[[ProcessHandler], Awaitable[SimProcess]]:
    """Return what starts processes."""

    async def start(handler: ProcessHandler) -> SimProcess:
        await clock.sleep(START_S)
        return SimProcess(function_of(handler.path))

    return start


async def _end_of(
    handler: Callable[[Context], Awaitable[Any]], context: AttemptContext
) -> tuple[Any, BaseException | None]:
    """Return the handler's result and its error, as the agent hears of them."""
    try:
        return await handler(Context(context)), None
    except BaseException as raised:  # noqa: BLE001 - the attempt raises it
        error = deciding_leaf(raised, CallRefusedError)
        located = raised if error.__traceback__ is None else error
        is_of_agent = isinstance(error, _OF_THE_AGENT)
        return None, error if is_of_agent else RemoteError(fault_of(error, located))
