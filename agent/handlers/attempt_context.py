"""An attempt in its agent: what contexts show of it, and what only docllm's own code uses."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from itertools import count
from typing import Any

import orjson

from docllm.agent.handlers.attempt_time import AttemptTime
from docllm.agent.handlers.calls.attempt_calls import AttemptCalls
from docllm.agent.handlers.calls.results import (
    Answer,
    CallRefusedError,
    LeaseLostError,
    WaitedTooLongError,
)
from docllm.agent.handlers.context import ContextCall
from docllm.agent.handlers.decisions import AttemptEndedError
from docllm.agent.handlers.documents import Expected, require_content
from docllm.agent.handlers.follow_ups import FollowUps
from docllm.agent.handlers.handler_run import HandlerRun, Tools
from docllm.agent.handlers.held_lock import require_name
from docllm.agent.handlers.task_log import TaskLog
from docllm.agent.judge import one_line
from docllm.agent.judge.snooze_delay import back_off
from docllm.agent.judge.tiers import IN_LEDGER, MAX_WAIT_S
from docllm.agent.ports import SUSPECT_LOSSES
from docllm.agent.ports.outcome import (
    Dead,
    Failure,
    FollowUp,
    HandlerState,
    Moved,
    Outcome,
    Released,
    Retry,
    Snooze,
    Spent,
    unseen,
)
from docllm.agent.quota.limit import Permit
from docllm.schemas.settings.config import NO_SETTINGS, Structured, TypeConfig
from docllm.schemas.settings.known_models import known_tokens
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.line.parsing import TaskLine
from docllm.schemas.task.result.notes import NoteKind
from docllm.schemas.task.waits import WaitReason

MIN_COME_BACK_S = 1.0
NO_STATE = HandlerState(b"{}", 0)


class AttemptContext:
    """One attempt at one task. `rules` are those of its type, with the time limit of its line.

    Built-in handlers get it by itself, others through a `Context` or a `BlockingContext`. First
    comes what these need; `RemoteAttempt` has the same.
    """

    def __init__(self, *, task: TaskLine, run: HandlerRun, tools: Tools) -> None:
        self._task = _for_tenant(task, run.inherited.tenant)
        self.rules = _rules(task, tools)
        self.has_begun = False  # whether a handler's own function was begun
        self._has_ended = False
        run = replace(
            run,
            may_call=partial(self._may_call, run.may_call),
            note_spent=partial(self._note_spent, run.note_spent),
        )
        self._run = run
        self._tools = tools
        self._time = AttemptTime(
            clock=tools.clock,
            claim_s=run.left_s,
            rules=self.rules,
            began_s=None if run.first_call is None else run.first_call.began_s,
        )
        self.noted: dict[NoteKind, dict[str, None]] = {}  # texts by kind, each once
        self._calls = AttemptCalls(
            task=self.task,
            rules=self.rules,
            run=run,
            tools=tools,
            time=self._time,
            note=self.note,
        )
        self._locks: set[str] = set()  # that it holds or waits for
        self._uses: dict[int, Permit] = {}
        self._use_numbers = count()
        self._follow_ups = FollowUps(parent=task, inherited=run.inherited, tools=tools)

    @property
    def task(self) -> TaskLine:
        """The task's line, with the tenant for which it runs."""
        return self._task

    @property
    def name(self) -> str:
        """The task's number, batch and id, for a line in the log."""
        place = f"{one_line(self._run.batch)}/{one_line(self.task.key)}"
        return f"task {self._run.task_id} ({place})"

    @property
    def attempt(self) -> int:
        """The number of the attempt: 1 for the first."""
        return self._run.counted_before + 1

    @property
    def losses(self) -> int:
        """How many agents were lost over the task before this run."""
        return self._run.losses

    @cached_property
    def state(self) -> dict[str, Any]:
        """What the handler kept when it came back the last time; empty if it did not."""
        state: dict[str, Any] = orjson.loads((self._run.state or NO_STATE).json)
        return state

    @property
    def model(self) -> str | None:
        """The model for tasks that name none."""
        return self._calls.client.model

    @property
    def prompt(self) -> str | None:
        """The prompt of the task, else of its type."""
        return self.rules.prompt if self.task.prompt is None else self.task.prompt

    @property
    def schema(self) -> dict[str, Any] | None:
        """The schema of the task, else of its type."""
        return self.rules.schema if self.task.schema is None else self.task.schema

    @property
    def structured(self) -> Structured:
        """The form in which the route's server takes a schema."""
        return self._calls.client.structured

    @property
    def overdue(self) -> bool:
        """Whether the attempt has passed the soft limit of its type."""
        return self._time.overdue

    @property
    def log(self) -> TaskLog:
        """A log whose lines begin with the task's name."""
        facts: dict[str, object] = {
            "batch": self._run.batch,
            "task": self.task.key,
            "attempt": self.attempt,
            "route": self._calls.route,
        }
        if trace_id := self._run.trace.trace_id:
            facts["trace_id"] = trace_id
        return TaskLog(self.name, facts=facts)

    async def call(self, wanted: ContextCall, /, **arguments: Any) -> Any:
        """Do what the method of this name does."""
        result = getattr(self, wanted)(**arguments)
        return await result if inspect.isawaitable(result) else result

    async def document(self) -> str | None:
        """Return the text of the task's input; see `Context.document`."""
        self._time.require()
        task = self.task
        if task.uri is None:
            if task.source is not None and (omitted := task.source.get("omitted")):
                self.note(NoteKind.OMITTED, *omitted)
            return None if task.text is None else require_content(task.text, "the document")
        expected = Expected(task.size, task.sha256, task.etag)
        read = await self._tools.documents.read(task.uri, expected)
        if read.omitted:
            self.note(NoteKind.OMITTED, *read.omitted)
        return read.text

    async def complete(
        self,
        body: Mapping[str, Any],
        *,
        schema: dict[str, Any] | None = None,
        verbatim: bool = False,
    ) -> Answer:
        """Make a chat completion and return its answer; see `Context.complete`."""
        self._require_attempt()
        self._time.require()
        return await self._calls.complete(body, schema=schema, verbatim=verbatim)

    async def follow(
        self, line: Mapping[str, Any], after: str | None = None, on_dead_child: str = "wait"
    ) -> None:
        """Order another task; see `Context.follow`."""
        await self._follow_ups.add(line, after, on_dead_child)
        self._require_attempt()  # otherwise nobody takes what was ordered

    async def children(self, after: int) -> Sequence[Sequence[Any]]:
        """Return the next tasks for which a join waited, behind the one with this number.

        Each has its number, and the fields of `Child`.
        """
        self._time.require()
        return await self._tools.children(self._run.task_id, after)

    async def take_lock(self, name: str, wait_s: float | None) -> int:
        """Take a lock, which must be given back, and return its token; see `Context.lock`."""
        most_s = self._time.wait_s(wait_s)
        self._run.locks.ask(require_name(name))
        self._locks.add(name)
        try:
            return await self._token(name, most_s or self._time.wait_s(None), once=most_s == 0)
        except BaseException:
            self.give_back_lock(name)
            raise

    async def _token(self, name: str, wait_s: float, *, once: bool) -> int:
        token = await self._run.locks.wait(name, wait_s, once=once)
        if token is None:
            raise WaitedTooLongError
        self.check_lock()
        return token

    def check_lock(self) -> None:
        """Raise LeaseLostError if another attempt may hold this attempt's locks.

        After a long stall, the claim may be overdue even though the agent's lease is good.
        """
        if not self._run.may_call() or self._time.of_claim_s <= 0:
            raise LeaseLostError

    def give_back_lock(self, name: str) -> None:
        """Give a lock back."""
        self._locks.discard(name)
        self._run.locks.give_back(name)

    async def take_limit(self, name: str, wait_s: float | None) -> int:
        """Begin a use, which must be given back, and return its number; see `Context.limit`."""
        limits = self._tools.limits
        permit = await limits.wait_for_use(name, self._time.wait_s(wait_s))
        if permit is None:
            raise WaitedTooLongError
        if not self._run.may_call():
            limits.end_use(permit)
            raise LeaseLostError
        number = next(self._use_numbers)
        self._uses[number] = permit
        return number

    def give_back_limit(self, number: int) -> None:
        """End a use of a limit, if it has not ended with its attempt."""
        if (permit := self._uses.pop(number, None)) is not None:
            self._tools.limits.end_use(permit)

    def _may_call(self, may_call: Callable[[], bool]) -> bool:
        return not self._has_ended and may_call()

    def _note_spent(self, note_spent: Callable[[Spent], None], spent: Spent) -> None:
        """Note the attempt's cost, unless what the handler left behind has called after its end."""
        if not self._has_ended:
            note_spent(spent)

    def _require_attempt(self) -> None:
        """Raise AttemptEndedError in what the handler started and left behind."""
        if self._has_ended:
            raise AttemptEndedError(f"{self.name}: the attempt has ended, so this has no effect")

    def note(self, kind: NoteKind, *texts: str) -> None:
        """Note something beside the result of the attempt; it is stored if the attempt succeeds.

        Texts of one kind are collected; equal ones count once.
        """
        self.noted.setdefault(kind, {}).update(dict.fromkeys(texts))

    # ---- for the runner

    def end(self) -> None:
        """Refuse further calls, costs and follow-ups: the handler has ended."""
        self._has_ended = True
        self._end_uses()

    @property
    def spent(self) -> Spent:
        """The cost of the attempt's calls so far."""
        return self._calls.spent

    @property
    def follow_ups(self) -> tuple[FollowUp, ...]:
        """The follow-ups ordered so far."""
        return self._follow_ups.ordered

    @property
    def agents_lost(self) -> int:
        """How many agents were lost over the task since an attempt last counted."""
        return self._run.agents_lost

    @property
    def suspect(self) -> bool:
        """Whether the task may be one that kills its agents."""
        return self.agents_lost >= SUSPECT_LOSSES

    def failed(
        self, failure: Failure, *, after_s: float = 0.0, at: datetime | None = None
    ) -> Outcome:
        """Return the outcome of an attempt that failed outside a call.

        The next attempt comes after at least `after_s` seconds, and not before `at`.
        """
        outcome = self._calls.failed(failure, after_s=after_s)
        if at is not None and isinstance(outcome, Retry):
            return replace(outcome, tier=IN_LEDGER, at=at)
        return outcome

    def cut_off(self, why: str) -> Released | Dead:
        """Return the outcome of an attempt that was ended from outside.

        What must not run twice is dead once its function, or a call, has begun. Otherwise the next
        run is told that this one had begun.
        """
        begun = self.has_begun or self._calls.has_begun
        if begun and self.rules.on_loss == "dead":
            return unseen(why, self.spent)
        return Released(self.spent, cut_off=self.has_begun)

    def comes_back(self, after_s: float, at: datetime | None, state: bytes | None) -> Moved | Dead:
        """Return the outcome of an attempt whose handler comes back later, and keeps its state."""
        kept = self._run.state or NO_STATE
        most = self.rules.max_come_backs
        if kept.come_backs >= most:
            text = (
                f"its handler has come back {most:,} times, the most that max_come_backs of type "
                f"{self.task.type} allows"
            )
            return Dead(Failure(ErrorClass.HANDLER_GAVE_UP, text), self.spent)
        return Moved(
            Failure(ErrorClass.COME_BACK, "its handler comes back later"),
            self.spent,
            min(max(after_s, MIN_COME_BACK_S), MAX_WAIT_S),
            WaitReason.TIME,
            at=at,
            state=HandlerState(kept.json if state is None else state, kept.come_backs + 1),
        )

    def waited_too_long(self) -> Snooze:
        """Return the outcome of an attempt that did not get a lock, or room within a limit.

        Otherwise a handler that tries once would run again at once, and again.
        """
        text = "its handler waited too long for a lock, or for room within a limit"
        delay_s = back_off(self._run.snoozes, self._tools.jitter())
        return Snooze(Failure(ErrorClass.COME_BACK, text), self.spent, delay_s)

    # ---- for the built-in handlers

    @property
    def context_tokens(self) -> int | None:
        """The size of the model's context in tokens; None if unknown."""
        client, model = self._calls.client, self._calls.model
        return client.context_tokens if model in {"", client.model} else known_tokens(model)

    @property
    def tokens_per_byte(self) -> float:
        """How many tokens a byte of the requests for this type and model has had lately."""
        return self._tools.token_ratios.tokens_per_byte(self._calls.model, self.task.type)

    @property
    def left_s(self) -> float:
        """How much time the attempt has left."""
        return self._time.left_s

    async def call_again(self, refused: CallRefusedError, wait_s: float) -> None:
        """Wait at least `wait_s` after a failed call, and until the route takes calls again.

        Raises the error again if the attempt's time would end first, or if the attempt may make no
        further call.
        """
        await self._calls.wait_for_another(refused, wait_s)

    # ---- for handlers in processes

    @property
    def line(self) -> bytes:
        """The task's line as it was loaded."""
        return self._run.value

    def begin_again(self) -> None:
        """Reset the context before the handler runs again within the attempt; costs stay."""
        self._time.begin_again()
        self._follow_ups.clear()
        self.noted.clear()
        for name in tuple(self._locks):
            self.give_back_lock(name)
        self._end_uses()

    def _end_uses(self) -> None:
        for number in tuple(self._uses):
            self.give_back_limit(number)


def _rules(task: TaskLine, tools: Tools) -> TypeConfig:
    """Return the rules of a task's type; a line may shorten the time of an attempt."""
    rules = tools.types.get(task.type, NO_SETTINGS)
    if task.time_limit_s is None:
        return rules
    most_s = tools.limit_s(task.type)
    return replace(rules, time_limit_s=min(task.time_limit_s, most_s))


def _for_tenant(task: TaskLine, tenant: str) -> TaskLine:
    """Return the task with the tenant for which it runs, if its line names none."""
    if "tenant" in task.given or task.tenant == tenant:
        return task
    return replace(task, tenant=tenant)


Handler = Callable[[AttemptContext], Awaitable[Any]]
