"""Runs tasks over which agents were lost, each in a new process of its own.

Nothing else runs in that process, so if the process dies, the task is the cause and no agent is
lost. A type with `run = "process"` keeps its own processes.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from docllm.agent.handlers.attempt_context import AttemptContext, Handler
from docllm.agent.handlers.builtin.map_reduce import map_reduce
from docllm.agent.handlers.processes.pool import HandlerProcesses
from docllm.agent.handlers.processes.process import (
    ProcessDiedError,
    ProcessHandler,
    ProcessUnusableError,
)
from docllm.schemas.codes import Code
from docllm.schemas.runtime.interpreter_watchdog import LIMIT_S

log = logging.getLogger(__name__)

RunSuspect = Callable[[Handler, AttemptContext], Awaitable[Any]]


class SuspectDiedError(Exception):
    """A task over which agents were lost has ended its own process, too."""


async def run_suspect(
    processes: HandlerProcesses, handler: Handler, context: AttemptContext
) -> Any:
    """Return the result of a suspect's handler, or raise its error.

    If no process can be started, the handler runs in the agent. Raises SuspectDiedError.
    """
    if context.rules.run == "process" or handler is map_reduce:
        return await handler(context)  # `map_reduce` runs no code but docllm's own
    # What froze its agents freezes its process too.
    program = ProcessHandler(_path(handler, context), context.task.type, frozen_s=LIMIT_S)
    try:
        return await processes.run_in_own_process(program, context)
    except ProcessUnusableError as error:
        log.warning(
            "%s runs in the agent, although %d agents were lost over it: %s",
            context.name,
            context.agents_lost,
            error,
            extra={"code": Code.SUSPECT_RUNS},
        )
    except ProcessDiedError as error:
        text = f"{context.agents_lost} agents were lost while they worked on it; then {error}"
        raise SuspectDiedError(text) from None
    return await handler(context)


def _path(handler: Handler, context: AttemptContext) -> str:
    """Return where a process finds the handler: by the type's settings, else the built-in one."""
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    return context.rules.handler or f"{handler.__module__}:{name}"
