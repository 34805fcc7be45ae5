"""The contexts of an attempt, as the authors of handlers know them, and what they stand on."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from enum import StrEnum
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

from docllm.agent.handlers.calls.results import Answer
from docllm.agent.handlers.decisions import AttemptEndedError
from docllm.agent.handlers.held_lock import HeldLock
from docllm.agent.handlers.task_log import TaskLog
from docllm.schemas.settings.config import Structured
from docllm.schemas.task.line.parsing import TaskLine

BlockingHandler = Callable[["BlockingContext"], Any]
Wait = Callable[[Callable[[], Any]], Any]  # takes what begins a call; returns its result


class ContextCall(StrEnum):
    """A question of a context to its attempt; a process may ask nothing else."""

    DOCUMENT = "document"
    COMPLETE = "complete"
    FOLLOW = "follow"
    CHILDREN = "children"
    TAKE_LOCK = "take_lock"
    CHECK_LOCK = "check_lock"
    GIVE_BACK_LOCK = "give_back_lock"
    TAKE_LIMIT = "take_limit"
    GIVE_BACK_LIMIT = "give_back_limit"


class AttemptPort(Protocol):
    """The attempt behind a context, in the agent or in a process: values and calls."""

    @property
    def task(self) -> TaskLine:
        """The task's line."""
        ...

    @property
    def name(self) -> str:
        """The task's number, batch and id."""
        ...

    @property
    def attempt(self) -> int:
        """The number of the attempt."""
        ...

    @property
    def losses(self) -> int:
        """How many runs of the task were cut off before this one."""
        ...

    @property
    def state(self) -> dict[str, Any]:
        """The dict that the handler kept when it came back the last time."""
        ...

    @property
    def model(self) -> str | None:
        """The model for tasks that name none."""
        ...

    @property
    def prompt(self) -> str | None:
        """The prompt of the task, else of its type."""
        ...

    @property
    def schema(self) -> dict[str, Any] | None:
        """The schema of the task, else of its type."""
        ...

    @property
    def structured(self) -> Structured:
        """The form in which the route's server takes a schema."""
        ...

    @property
    def overdue(self) -> bool:
        """Whether the attempt has passed the soft limit of its type."""
        ...

    @property
    def log(self) -> TaskLog:
        """A log whose lines begin with the task's name."""
        ...

    def call(self, wanted: ContextCall, /, **arguments: Any) -> Awaitable[Any]:
        """Begin what a method of `AttemptContext` does that has this name."""
        ...

    def check_lock(self) -> None:
        """Raise LeaseLostError if another attempt may hold this attempt's locks.

        Any thread of the handler may call it.
        """
        ...


class Child(NamedTuple):
    """A task for which a join waited.

    `status` is `succeeded`, `dead` or `cancelled`, or that of an open task if a replay runs it
    again. `result` is what an export writes: a text or a JSON value, None unless it succeeded.
    """

    id: str
    status: str
    result: Any


class ContextValues:
    """The values of an attempt that a handler reads without a call."""

    def __init__(self, attempt: AttemptPort) -> None:
        self._attempt = attempt

    @property
    def task(self) -> TaskLine:
        """The task's line: `key`, `prompt`, `metadata` and so on."""
        return self._attempt.task

    @property
    def name(self) -> str:
        """The task's number, batch and id, for a line in the log."""
        return self._attempt.name

    @property
    def attempt(self) -> int:
        """The number of the attempt: 1 for the first. Only attempts that count raise it.

        In a hook, it is the number of the last attempt that counted, or 1 if none has.
        """
        return self._attempt.attempt

    @property
    def losses(self) -> int:
        """How many runs of the task were cut off before this one; 0 in a hook.

        If it is not 0, what an earlier run was to change may have happened: its agent was lost, or
        stopped before the run had ended. A loss counts for ever, also after a replay. A run of an
        agent that was only slow, and has stored its end after all, is none.
        """
        return self._attempt.losses

    @property
    def state(self) -> dict[str, Any]:
        """The dict that the last `ComeBackError` has kept; empty in the first run, and in a hook.

        To keep a change, give the dict to the next `ComeBackError`.
        """
        return self._attempt.state

    @property
    def model(self) -> str | None:
        """The model for tasks that name none; it changes when the attempt changes routes."""
        return self._attempt.model

    @property
    def prompt(self) -> str | None:
        """The prompt of the task, else of its type; None if neither has one."""
        return self._attempt.prompt

    @property
    def schema(self) -> dict[str, Any] | None:
        """The schema of the task, else of its type; None if neither has one."""
        return self._attempt.schema

    @property
    def structured(self) -> Structured:
        """The form in which the route's server takes a schema."""
        return self._attempt.structured

    @property
    def overdue(self) -> bool:
        """Whether the attempt has passed the soft limit of its type."""
        return self._attempt.overdue

    @property
    def log(self) -> TaskLog:
        """A log whose lines begin with the task's name."""
        return self._attempt.log


class Context(ContextValues):
    """One attempt at one task, as a coroutine that is a handler or a hook gets it.

    It has the task and makes calls for it. docllm books their cost, keeps to the limits, and judges
    the replies. A plain function gets a `BlockingContext`, which has the same names.
    """

    async def document(self) -> str | None:
        """Return the text of the task's input, or None if it has none.

        Raises DocumentError. Unless the handler catches it, it ends the attempt as a failure of its
        error class. Raises SoftLimitError once.
        """
        text: str | None = await self._attempt.call(ContextCall.DOCUMENT)
        return text

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
        answer: Answer = await self._attempt.call(
            ContextCall.COMPLETE, body=body, schema=schema, verbatim=verbatim
        )
        return answer

    async def follow(
        self,
        line: Mapping[str, Any],
        after: Literal["children"] | None = None,
        on_dead_child: Literal["wait", "run", "die"] = "wait",
    ) -> None:
        """Order another task, to be made in the transaction that stores this task's success.

        `line` is a task line as `load` takes it, as a dict. The task joins this one's batch. Unless
        the line says otherwise, it has this one's tenant, lane and `routes_allowed`. If the attempt
        fails, nothing is made. Raises FollowUpError for a line that is no task.

        `after` "children" makes it a join: it runs when the other tasks have ended that this one
        orders. If one of them is dead or cancelled then, `on_dead_child` says whether the join
        waits for its replay, runs, or dies.
        """
        await self._attempt.call(
            ContextCall.FOLLOW, line=line, after=after, on_dead_child=on_dead_child
        )

    async def children(self) -> AsyncIterator[Child]:
        """Yield the tasks for which this join waited, in the order in which they were ordered.

        They are read in pages. Raises ValueError in a task that is no join, and DocumentError for a
        result that cannot be read.
        """
        after = 0
        while page := await self._attempt.call(ContextCall.CHILDREN, after=after):
            for _number, *child in page:
                yield Child(*child)
            after = page[-1][0]

    @asynccontextmanager
    async def lock(self, name: str, wait_s: float | None = None) -> AsyncIterator[HeldLock]:
        """Hold a lock, which one attempt of the group holds at a time, in the order of asking.

        Raises LockError for an invalid name, and for a lock that this attempt already holds. Raises
        WaitedTooLongError if the lock is not free in `wait_s`, or in half of the attempt's time; 0
        tries once. Unless a handler that set `wait_s` catches it, the task keeps its place and runs
        again after a pause, uncounted. A handler must not catch LeaseLostError.
        """
        token = await self._attempt.call(ContextCall.TAKE_LOCK, name=name, wait_s=wait_s)
        try:
            yield HeldLock(name, token, self._attempt.check_lock)
        finally:
            await self._attempt.call(ContextCall.GIVE_BACK_LOCK, name=name)

    @asynccontextmanager
    async def limit(self, name: str, wait_s: float | None = None) -> AsyncIterator[None]:
        """Use what `[limits.NAME]` limits, once it has room for another use of the group.

        Raises LimitError if the settings have no such section. Raises WaitedTooLongError as `lock`
        does; 0 asks once, which takes up to 2.5 s.
        """
        number = await self._attempt.call(ContextCall.TAKE_LIMIT, name=name, wait_s=wait_s)
        try:
            yield
        finally:
            await self._attempt.call(ContextCall.GIVE_BACK_LIMIT, number=number)


class BlockingContext(ContextValues):
    """One attempt at one task, as a plain function gets it, in a thread or in a child process.

    It has the names of `Context`, without `await`. Any thread of the handler may use it.
    """

    def __init__(self, attempt: AttemptPort, *, wait: Wait) -> None:
        super().__init__(attempt)
        self._wait = wait

    def document(self) -> str | None:
        """Return the text of the task's input, or None if it has none, as `Context.document`."""
        text: str | None = self._call(ContextCall.DOCUMENT)
        return text

    def complete(
        self,
        body: Mapping[str, Any],
        *,
        schema: dict[str, Any] | None = None,
        verbatim: bool = False,
    ) -> Answer:
        """Make a chat completion and return its answer, as `Context.complete`."""
        answer: Answer = self._call(
            ContextCall.COMPLETE, body=body, schema=schema, verbatim=verbatim
        )
        return answer

    def follow(
        self,
        line: Mapping[str, Any],
        after: Literal["children"] | None = None,
        on_dead_child: Literal["wait", "run", "die"] = "wait",
    ) -> None:
        """Order another task, as `Context.follow`."""
        self._call(ContextCall.FOLLOW, line=line, after=after, on_dead_child=on_dead_child)

    def children(self) -> Iterator[Child]:
        """Yield the tasks for which this join waited, as `Context.children`."""
        after = 0
        while page := self._call(ContextCall.CHILDREN, after=after):
            for _number, *child in page:
                yield Child(*child)
            after = page[-1][0]

    @contextmanager
    def lock(self, name: str, wait_s: float | None = None) -> Iterator[HeldLock]:
        """Hold a lock, as `Context.lock`. Raises AttemptEndedError if the attempt has ended."""
        token = self._call(ContextCall.TAKE_LOCK, name=name, wait_s=wait_s)
        try:
            yield HeldLock(name, token, self._attempt.check_lock)
        finally:
            # The lock was already released when the attempt ended.
            with suppress(AttemptEndedError):
                self._call(ContextCall.GIVE_BACK_LOCK, name=name)

    @contextmanager
    def limit(self, name: str, wait_s: float | None = None) -> Iterator[None]:
        """Use what `[limits.NAME]` limits, as `Context.limit`."""
        number = self._call(ContextCall.TAKE_LIMIT, name=name, wait_s=wait_s)
        try:
            yield
        finally:
            with suppress(AttemptEndedError):
                self._call(ContextCall.GIVE_BACK_LIMIT, number=number)

    def _call(self, wanted: ContextCall, **arguments: Any) -> Any:
        return self._wait(partial(self._attempt.call, wanted, **arguments))
