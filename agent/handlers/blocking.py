"""The blocking form of `Context`: the same methods, each of which waits for its result.

A plain function gets it, in a thread or in a child process.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Any, Protocol

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.calls.results import Answer
from docllm.agent.handlers.context import ContextValues
from docllm.agent.handlers.decisions import AttemptEndedError
from docllm.agent.handlers.held_lock import HeldLock
from docllm.agent.handlers.task_log import TaskLog
from docllm.schemas.settings.config import Structured
from docllm.schemas.task.line.parsing import TaskLine

BlockingHandler = Callable[["BlockingContext"], Any]


class ContextCall(StrEnum):
    """The only calls that a handler outside the event loop may make on its attempt."""

    DOCUMENT = "document"
    COMPLETE = "complete"
    FOLLOW = "follow"
    TAKE_LOCK = "take_lock"
    CHECK_LOCK = "check_lock"
    GIVE_BACK_LOCK = "give_back_lock"


class AskAgent(Protocol):
    """Sends a call to the agent from a thread outside the event loop; waits for the result."""

    def __call__(self, wanted: ContextCall, arguments: Mapping[str, Any]) -> Any:
        """Return the result, or raise its error."""
        ...


class ViewedContext(ContextValues):
    """The values of an attempt, as a handler outside the event loop sees them."""

    def __init__(self, view: ContextValues) -> None:
        self._view = view

    @property
    def task(self) -> TaskLine:
        """The task's line."""
        return self._view.task

    @property
    def name(self) -> str:
        """The task's number, batch and id, for a line in the log."""
        return self._view.name

    @property
    def attempt(self) -> int:
        """The number of the attempt: 1 for the first."""
        return self._view.attempt

    @property
    def model(self) -> str | None:
        """The model for tasks that name none; it changes when the attempt changes routes."""
        return self._view.model

    @property
    def prompt(self) -> str | None:
        """The prompt of the task, else of its type."""
        return self._view.prompt

    @property
    def schema(self) -> dict[str, Any] | None:
        """The schema of the task, else of its type."""
        return self._view.schema

    @property
    def overdue(self) -> bool:
        """Whether the attempt has passed the soft limit of its type."""
        return self._view.overdue

    @property
    def structured(self) -> Structured:
        """The form in which the route's server takes a schema."""
        return self._view.structured

    @property
    def log(self) -> TaskLog:
        """A log whose lines begin with the task's name."""
        return self._view.log


class BlockingContext(ViewedContext):
    """One attempt at one task, as a plain function gets it.

    It has the names of `Context`, without `await`. Any thread of the handler may use it.
    """

    def __init__(self, *, view: ContextValues, ask: AskAgent) -> None:
        super().__init__(view)
        self._ask = ask

    def document(self) -> str | None:
        """Return the text of the task's input, or None if it has none, as `Context.document`."""
        text: str | None = self._ask(ContextCall.DOCUMENT, {})
        return text

    def complete(
        self,
        body: Mapping[str, Any],
        *,
        schema: dict[str, Any] | None = None,
        verbatim: bool = False,
    ) -> Answer:
        """Make a chat completion and return its answer, as `Context.complete`."""
        arguments = {"body": dict(body), "schema": schema, "verbatim": verbatim}
        answer: Answer = self._ask(ContextCall.COMPLETE, arguments)
        return answer

    def follow(self, line: Mapping[str, Any]) -> None:
        """Order another task, as `Context.follow`."""
        self._ask(ContextCall.FOLLOW, {"line": line})

    @contextmanager
    def lock(self, name: str) -> Iterator[HeldLock]:
        """Hold a lock, as `Context.lock`. Raises AttemptEndedError if the attempt has ended."""
        token: int = self._ask(ContextCall.TAKE_LOCK, {"name": name})
        try:
            yield HeldLock(name, token, lambda: self._ask(ContextCall.CHECK_LOCK, {}))
        finally:
            # The lock was already released when the attempt ended.
            with suppress(AttemptEndedError):
                self._ask(ContextCall.GIVE_BACK_LOCK, {"name": name})


async def carry_out(
    context: AttemptContext, wanted: ContextCall, arguments: Mapping[str, Any]
) -> Any:
    """Carry out a handler's call on its attempt's context."""
    match wanted:
        case ContextCall.DOCUMENT:
            return await context.document()
        case ContextCall.COMPLETE:
            return await context.complete(**arguments)
        case ContextCall.FOLLOW:
            return await context.follow(**arguments)
        case ContextCall.TAKE_LOCK:
            return await context.take_lock(**arguments)
        case ContextCall.CHECK_LOCK:
            return context.check_lock()
        case ContextCall.GIVE_BACK_LOCK:
            return context.give_back_lock(**arguments)
