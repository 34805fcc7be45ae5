"""The context of an attempt, as the author of a handler knows it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from docllm.agent.handlers.calls.results import Answer
from docllm.agent.handlers.held_lock import HeldLock
from docllm.agent.handlers.task_log import TaskLog
from docllm.schemas.settings.config import Structured
from docllm.schemas.task.line.parsing import TaskLine


class ContextValues(ABC):
    """What a handler reads of its attempt without a call."""

    @property
    @abstractmethod
    def task(self) -> TaskLine:
        """The task's line: `key`, `prompt`, `metadata` and so on."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The task's number, batch and id, for a line in the log."""

    @property
    @abstractmethod
    def attempt(self) -> int:
        """The number of the attempt: 1 for the first. Only attempts that count raise it.

        In a hook, it is the number of the last attempt that counted, or 1 if none has.
        """

    @property
    @abstractmethod
    def model(self) -> str | None:
        """The model for tasks that name none; it changes when the attempt changes routes."""

    @property
    @abstractmethod
    def prompt(self) -> str | None:
        """The prompt of the task, else of its type; None if neither has one."""

    @property
    @abstractmethod
    def schema(self) -> dict[str, Any] | None:
        """The schema of the task, else of its type; None if neither has one."""

    @property
    @abstractmethod
    def structured(self) -> Structured:
        """The form in which the route's server takes a schema."""

    @property
    @abstractmethod
    def overdue(self) -> bool:
        """Whether the attempt has passed the soft limit of its type."""

    @property
    @abstractmethod
    def log(self) -> TaskLog:
        """A log whose lines begin with the task's name."""


class Context(ContextValues):
    """One attempt at one task, as a coroutine that is a handler or a hook gets it.

    It has the task and makes calls for it. docllm books their cost, keeps to the limits, and judges
    the replies. A plain function gets a `BlockingContext`, which has the same names.
    """

    @abstractmethod
    async def document(self) -> str | None:
        """Return the text of the task's input, or None if it has none.

        Raises DocumentError. Unless the handler catches it, it ends the attempt as a failure of its
        error class. Raises SoftLimitError once.
        """

    @abstractmethod
    async def complete(
        self,
        body: Mapping[str, Any],
        *,
        schema: dict[str, Any] | None = None,
        verbatim: bool = False,
    ) -> Answer:
        """Make a chat completion and return its answer, which fits `schema`.

        Raises CallRefusedError and LeaseLostError; a handler must not catch them. Raises
        SoftLimitError once. An answer that does not fit the schema is sent back once, with what is
        wrong with it. With `verbatim`, any reply but an error is the answer, even if it is
        cut or filtered.
        """

    @abstractmethod
    async def follow(self, line: Mapping[str, Any]) -> None:
        """Order another task, to be made in the transaction that stores this task's success.

        `line` is a task line as `load` takes it, as a dict. The task joins this one's batch. Unless
        the line says otherwise, it has this one's tenant, lane and `routes_allowed`. If the attempt
        fails, nothing is made. Raises FollowUpError for a line that is no task.
        """

    @abstractmethod
    def lock(self, name: str) -> AbstractAsyncContextManager[HeldLock]:
        """Hold a lock, which one attempt of the group holds at a time, in the order of asking.

        Raises LockError for an invalid name, and for a lock that this attempt already holds. Raises
        WaitedTooLongError if the lock is not free in half of the attempt's time: the task keeps its
        place and runs again, uncounted. A handler must not catch WaitedTooLongError and
        LeaseLostError.
        """
