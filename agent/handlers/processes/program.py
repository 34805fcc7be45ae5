"""The program of a handler's process: runs the attempts that the agent sends, in turn."""

import asyncio
import faulthandler
import logging
import os
import resource
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from docllm.agent.handlers.calls.results import CallRefusedError
from docllm.agent.handlers.context import BlockingContext, Context, ContextCall
from docllm.agent.handlers.faults import deciding_leaf, fault_of
from docllm.agent.handlers.json_values import as_json
from docllm.agent.handlers.processes.link import AgentLink, LinkHandler, NumberedAnswer, RemoteCall
from docllm.agent.handlers.processes.messages import Message
from docllm.agent.handlers.registry import function_of, is_async
from docllm.agent.handlers.task_log import TaskLog
from docllm.agent.ports.outcome import Dead, Outcome
from docllm.agent.process.child_process import begin, limit
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.interpreter_watchdog import ended_when_frozen
from docllm.schemas.settings.config import Structured
from docllm.schemas.task.line.parsing import TaskLine, parse_again

_SPARE_MB = 1024  # headroom for memory that is reserved but never used, such as thread stacks


@dataclass(slots=True, kw_only=True)
class RemoteAttempt:
    """An attempt as its agent has told of it, and the calls that the agent makes for it.

    `run` is its number on the link.
    """

    task: TaskLine
    name: str
    attempt: int
    losses: int
    state: dict[str, Any]
    prompt: str | None
    schema: dict[str, Any] | None
    run: int
    link: AgentLink

    @property
    def model(self) -> str | None:
        """The model for tasks that name none."""
        model: str | None = self.link.facts["model"]
        return model

    @property
    def overdue(self) -> bool:
        """Whether the attempt had passed its soft limit when the agent told last."""
        return bool(self.link.facts["overdue"])

    @property
    def structured(self) -> Structured:
        """The form in which the route's server takes a schema."""
        return Structured(self.link.facts["structured"])

    @property
    def log(self) -> TaskLog:
        """A log whose lines begin with the task's name."""
        return TaskLog(self.name)

    def call(self, wanted: ContextCall, /, **arguments: Any) -> RemoteCall:
        """Ask the agent for something."""
        return self.link.call(self.run, wanted, arguments)

    def check_lock(self) -> None:
        """Raise LeaseLostError if another attempt may hold this attempt's locks."""
        self.call(ContextCall.CHECK_LOCK).result()


def main(arguments: list[str]) -> None:
    """Run attempts of the handler at a path until the agent closes the link."""
    descriptor, path, memory_mb, frozen_s = arguments
    faulthandler.enable()
    link = AgentLink(begin(int(descriptor)))
    logging.basicConfig(level=logging.INFO, handlers=[LinkHandler(link)])
    try:
        function = function_of(path)
    except ConfigError as error:
        link.send(Message("unusable", {"text": str(error)}))
        return
    _limit_data(int(memory_mb))
    link.send(Message("ready", {}))
    link.start()
    with ended_when_frozen(float(frozen_s)) if frozen_s != "0" else nullcontext():
        while True:
            _run(function, link, link.next_run())


def _tell_result(result: Any, link: AgentLink) -> None:
    if isinstance(result, NumberedAnswer):
        link.end("answered", number=result.number)
    elif isinstance(result, Dead):
        failure, disposition = result.failure, result.disposition
        link.end(
            "dead",
            error_class=failure.error_class.name,
            text=failure.text,
            disposition=disposition.name,
        )
    elif isinstance(result, Outcome):
        raise TypeError(
            f"a handler does not return {type(result).__name__}; raise TryAgainError or GiveUpError"
        )
    else:
        link.end("returned", as_json(result))


def _limit_data(memory_mb: int) -> None:
    """Make very large allocations fail.

    The agent measures the process only periodically.
    """
    if memory_mb:
        limit(resource.RLIMIT_DATA, (2 * memory_mb + _SPARE_MB) << 20)


def _run(function: Callable[..., Any], link: AgentLink, message: Message) -> None:
    """Run one attempt and tell how it ended."""
    fields = message.fields
    number = fields["run"]
    link.begin(number, fields["facts"])
    try:
        task = replace(parse_again(message.data), tenant=fields["tenant"])
        attempt = RemoteAttempt(task=task, run=number, link=link, **fields["constant"])
        if is_async(function):
            result = asyncio.run(function(Context(attempt)))
        else:
            result = function(BlockingContext(attempt, wait=lambda call: call().result()))
        _tell_result(result, link)
    except BaseException as raised:  # noqa: BLE001 - whatever it raises is the attempt's failure
        error = deciding_leaf(raised, CallRefusedError)
        fault = fault_of(error, raised if error.__traceback__ is None else error)
        link.end(
            "raised",
            number=getattr(error, "call", None),
            text=fault.text,
            names=fault.names,
            traceback=fault.traceback,
            place=fault.place,
            decision=fault.decision,
            after_s=fault.after_s,
            at=fault.at and fault.at.isoformat(),
            state=fault.state and fault.state.decode(),
        )


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # threads that the handler's module started do not matter any more
