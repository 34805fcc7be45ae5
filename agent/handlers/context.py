"""A handler's view of an attempt: its task, its document, and calls with judged answers.

Tested by tests/unit/agent/handlers/test_runner.py.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from agent.handlers.decisions import SoftLimitError
from agent.handlers.documents import DocumentReader, require_content
from agent.handlers.follow_ups import FollowUpRules, FollowUps, Inherited
from agent.handlers.judging import Judged, judged
from agent.handlers.other_route import OtherRoute, body_for
from agent.handlers.repair import correction
from agent.handlers.request import packed, request_id
from agent.handlers.resource_locks import AttemptLocks, FreeLocks, HeldLock, require_name
from agent.handlers.task_log import TaskLog
from agent.handlers.traces import NO_TRACE, AttemptTrace
from agent.handlers.turns import CallEnd, CallTurn, FreeTurns, Turns
from agent.judge import Terms, Tier, one_line, outcome_of_failure, tiers_of
from agent.outcome import Dead, Failure, FollowUp, Outcome, Retry, Snooze, Spent, Succeeded
from agent.ports import SUSPECT_LOSSES, Call, CallFailed, Clock, Reply, RouteClient
from agent.quota.estimate import CallSize, Estimates, most_out
from agent.reporting.handler_errors import HandlerErrors
from schemas.runtime import crash
from schemas.runtime.executors import Executor
from schemas.settings.config import NO_SETTINGS, Price, Structured, TypeConfig
from schemas.settings.known_models import known_tokens
from schemas.task.codec import with_json
from schemas.task.line import TaskLine
from schemas.task.message_text import text_of

_NAME_CHARS = 191
# Longest wait for a lock, as a share of the attempt's time; the rest is for calls.
_LOCK_SHARE = 0.5
_LOOK_S = 1.0  # pause between two checks whether the route takes calls again
_SUCCESS = range(200, 300)
_Failed = Retry | Snooze | Dead


@dataclass(frozen=True, slots=True)
class Attempt:
    """A claimed task, as the worker hands it over.

    - `value`: the record's bytes.
    - `attempt`: how many attempts were counted before this one, of `max_attempts`.
    - `snoozes`: how often in a row the task was snoozed before.
    - `left_s`: the rest of the claim's time, which no call may exceed.
    - `route`: the route whose account is used.
    - `limit_s`: the time limit of a probe's call; None for any other call.
    - `refused_alone`: whether the task met AUTH before, and its route answered other calls since.
    - `may_call`: returns whether the claim's lease is good.
    - `go_on`: takes the outcome of a failed call; returns the route on which to make it again, or
      the outcome to settle.
    - `again`: takes the outcome of a failed call too. Returns the same route if it takes a call
      now, None if it may take one later, and otherwise the outcome to settle.
    - `inherited`: what the task's follow-ups take from it.
    - `turns`: lets each call wait for its turn within the provider's limits.
    - `locks`: takes locks for the attempt.
    - `output_uri`: where the batch sends results; the task's line wins.
    - `output_refusal`: returns the outcome to settle if results cannot be written there now; None
      if they can.
    - `trace`: records the attempt's calls as spans.
    - `agents_lost`: how many agents were lost over the task.
    - `note_spent`: is called after each call with the attempt's cost so far, because a cancelled
      attempt returns no outcome.
    """

    task_id: int
    batch: str
    value: bytes
    attempt: int
    max_attempts: int
    snoozes: int
    left_s: float
    route: str
    limit_s: float | None
    refused_alone: bool
    may_call: Callable[[], bool]
    note_spent: Callable[[Spent], None] = lambda _spent: None
    go_on: Callable[[_Failed], OtherRoute | Outcome] = lambda outcome: outcome
    again: Callable[[Outcome], OtherRoute | Outcome | None] = lambda outcome: outcome
    turns: Turns = field(default_factory=FreeTurns)
    inherited: Inherited = field(default_factory=Inherited)
    locks: AttemptLocks = field(default_factory=FreeLocks)
    output_uri: str = ""
    output_refusal: Callable[[str], Outcome | None] = lambda _uri: None
    trace: AttemptTrace = NO_TRACE
    agents_lost: int = 0


@dataclass(frozen=True, slots=True)
class Tools:
    """The means that all contexts share.

    `account` returns the account of a route. `apart` runs work that is too heavy for this process.
    `jitter` draws a number from 0 to 1. `types` is by task type. `failed` is called with every
    error that a handler raises. `errors` logs those that a handler did not raise on purpose.
    `usual_limit_s` is the time of a handler whose type sets no limit. `lengths` are the learned
    tokens per byte, by model and type of task.
    """

    account: Callable[[str], RouteClient]
    documents: DocumentReader
    clock: Clock
    apart: Executor
    jitter: Callable[[], float]
    prices: Mapping[str, Price]
    tiers: Sequence[Tier]
    types: Mapping[str, TypeConfig]
    max_attempts_of: Callable[[str], int]
    failed: Callable[[BaseException], None] = lambda _error: None
    errors: HandlerErrors = field(default_factory=HandlerErrors)
    usual_limit_s: float = math.inf
    lengths: Estimates = field(default_factory=Estimates)


@dataclass(frozen=True, slots=True)
class Answer:
    """A completion that fits its task, as the provider sent it.

    `outcome` is settled when a handler returns the answer.
    """

    body: bytes
    outcome: Succeeded

    @property
    def text(self) -> str:
        """Return the message's content; empty if the message has none."""
        text = text_of(orjson.loads(self.body)["choices"][0]["message"].get("content"))
        return text if isinstance(text, str) else ""


class CallRefusedError(Exception):
    """A call gave no usable answer.

    The error ends the handler, and `outcome` is settled. `was_answered` says that the provider
    answered, and bills, although the answer cannot be used.
    """

    def __init__(self, outcome: Outcome, *, was_answered: bool = False) -> None:
        super().__init__(outcome.failure.text if isinstance(outcome, _Failed) else "")
        self.outcome = outcome
        self.was_answered = was_answered


class LeaseLostError(Exception):
    """A call was not made, because the lease of the task's claim is lost or late.

    Another agent may have the task. The error ends the handler. A handler must not catch it.
    """


class NoTurnError(Exception):
    """A call or a lock did not get its turn in time.

    The limits left no room, or the lock was taken. The error ends the handler. A handler must not
    catch it.
    """


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of an attempt's calls: a route, with its account and its limits."""

    route: str
    account: RouteClient
    limit_s: float | None
    refused_alone: bool
    turns: Turns


class Context:
    """One attempt at one task.

    `spent` adds up the cost of its calls. `rules` are the rules of the task's type.
    """

    def __init__(self, *, task: TaskLine, attempt: Attempt, tools: Tools) -> None:
        self.task = _for_tenant(task, attempt.inherited.tenant)
        self.spent = Spent()
        self.rules = tools.types.get(task.type, NO_SETTINGS)
        self._attempt = attempt
        self._tools = tools
        self._place = _Place(
            attempt.route,
            tools.account(attempt.route),
            attempt.limit_s,
            attempt.refused_alone,
            attempt.turns,
        )
        self._first = self._place.account
        self._tiers = tiers_of(self.rules.tiers) if self.rules.tiers else tools.tiers
        rules = FollowUpRules(tools.types, tools.max_attempts_of, tools.apart)
        self._follow_ups = FollowUps(parent=task, inherited=attempt.inherited, rules=rules)
        self._lock_names: set[str] = set()
        self._calls = 0
        self._told_to_end = False
        self._began_s = tools.clock.now_s()

    @property
    def name(self) -> str:
        """Return the task's number, batch and id, for a line in the log."""
        place = f"{one_line(self._attempt.batch)}/{one_line(self.task.key)}"
        return f"task {self._attempt.task_id} ({place})"

    @property
    def line(self) -> bytes:
        """Return the task's line as it was loaded."""
        return self._attempt.value

    @property
    def agents_lost(self) -> int:
        """Return how many agents were lost over the task."""
        return self._attempt.agents_lost

    @property
    def suspect(self) -> bool:
        """Return whether the task may be one that kills its agents."""
        return self.agents_lost >= SUSPECT_LOSSES

    def begin_again(self) -> None:
        """Reset the context before the handler runs again within the attempt; costs stay."""
        self._told_to_end = False
        self._follow_ups.clear()
        for name in tuple(self._lock_names):
            self.give_back_lock(name)

    @property
    def log(self) -> TaskLog:
        """Return a log whose lines begin with the task's name."""
        facts: dict[str, object] = {
            "batch": self._attempt.batch,
            "task": self.task.key,
            "attempt": self._attempt.attempt + 1,
            "route": self._place.route,
        }
        if trace_id := self._attempt.trace.trace_id:
            facts["trace_id"] = trace_id
        return TaskLog(self.name, facts)

    @property
    def model(self) -> str | None:
        """Return the model for tasks that name none; it changes when the attempt changes routes."""
        return self._place.account.model

    @property
    def context_tokens(self) -> int | None:
        """Return the size of the model's context in tokens; None if unknown."""
        account, model = self._place.account, self.task.model
        return account.context_tokens if model in {None, account.model} else known_tokens(model)

    @property
    def tokens_per_byte(self) -> float:
        """Return how many tokens a byte of the requests for this type and model has had lately."""
        model = self.task.model or self.model or ""
        return self._tools.lengths.tokens_per_byte(model, self.task.type)

    @property
    def left_s(self) -> float:
        """Return how much time the attempt has left."""
        limit_s = self.rules.time_limit_s
        own_s = math.inf if limit_s is None else limit_s - self._elapsed_ms() / 1000
        return min(self._left_s(), own_s)

    @property
    def prompt(self) -> str | None:
        """Return the prompt of the task, else of its type; None if neither has one."""
        return self.rules.prompt if self.task.prompt is None else self.task.prompt

    @property
    def schema(self) -> dict[str, Any] | None:
        """Return the schema of the task, else of its type; None if neither has one."""
        return self.rules.schema if self.task.schema is None else self.task.schema

    @property
    def overdue(self) -> bool:
        """Return whether the attempt has passed the soft limit of its type."""
        limit_s = self.rules.soft_limit_s
        return limit_s is not None and self._elapsed_ms() >= limit_s * 1000

    @property
    def structured(self) -> Structured:
        """Return the form in which the route's server takes a schema."""
        return self._place.account.structured

    @property
    def follow_ups(self) -> tuple[FollowUp, ...]:
        """Return the follow-ups ordered so far."""
        return self._follow_ups.ordered

    async def follow(self, line: Mapping[str, Any]) -> None:
        """Order another task, to be made in the transaction that stores this task's success.

        `line` is a task line as `load` takes it, as a dict. The task joins this one's batch. Unless
        the line says otherwise, it has this one's tenant, lane and `routes_allowed`. If the attempt
        fails, nothing is made. Raises FollowUpError for a line that is no task.
        """
        await self._follow_ups.add(line)

    async def document(self) -> str | None:
        """Return the text of the task's input, or None if it has none.

        Raises DocumentError. Unless the handler catches it, it ends the attempt as a failure of its
        error class. Raises SoftLimitError once.
        """
        self._require_time()
        task = self.task
        if task.uri is None:
            return None if task.text is None else require_content(task.text, "the document")
        return await self._tools.documents.read(
            task.uri, size=task.size, sha256=task.sha256, etag=task.etag
        )

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
        self._require_time()
        sent, model, most = packed(body), str(body.get("model", "")), most_out(body)
        del body  # another copy of the text would wait for the answer
        place = self._place
        if place.account is not self._first:
            sent, model = _fitted(place, sent, schema)
        may_correct = not verbatim
        while True:
            reply, outcome = await self._call(place, sent, model, schema, most, verbatim=verbatim)
            if isinstance(outcome, Succeeded):
                answer = reply.body if isinstance(reply, Reply) else b""
                return Answer(answer, self._of_type(outcome, schema))
            corrected = correction(sent, reply, outcome, schema) if may_correct else None
            if corrected is not None and not self.overdue:
                sent, may_correct = corrected, False
                continue
            if self._place.route == place.route:
                was_answered = isinstance(reply, Reply) and reply.status in _SUCCESS
                self._leave(place, outcome, was_answered=was_answered)
            # Otherwise, a parallel call of the handler has already left the route.
            place = self._place
            sent, model = _fitted(place, sent, schema)

    def _leave(self, place: _Place, outcome: _Failed, *, was_answered: bool) -> None:
        """Switch to another route after a failure.

        Raises CallRefusedError if no route is left.
        """
        following = self._attempt.go_on(outcome)
        if not isinstance(following, OtherRoute):
            raise CallRefusedError(following, was_answered=was_answered)
        self.spent = self.spent.leaving(place.route, outcome.failure.error_class)
        self._attempt.note_spent(self.spent)
        account = self._tools.account(following.name)
        self._place = _Place(
            following.name,
            account,
            following.limit_s,
            refused_alone=False,
            turns=following.turns,
        )

    async def call_again(self, refused: CallRefusedError, wait_s: float) -> None:
        """Wait at least `least_s` after a failed call, and until the route takes calls again.

        For handlers of docllm's own. Raises the error again if the attempt's time would end first,
        or if the attempt may make no further call.
        """
        place, following = self._place, None
        while following is None:
            if wait_s >= self.left_s:
                raise refused
            await self._tools.clock.sleep(wait_s)
            if self._place is not place:
                return  # another call of the handler has asked meanwhile
            self._require_lease()
            following, wait_s = self._attempt.again(refused.outcome), _LOOK_S
        if not isinstance(following, OtherRoute):
            raise CallRefusedError(following) from refused
        self._place = replace(place, limit_s=following.limit_s, turns=following.turns)

    def _require_time(self) -> None:
        """Raise SoftLimitError at the first call after the soft limit."""
        if self.overdue and not self._told_to_end:
            self._told_to_end = True
            raise SoftLimitError(f"{self.rules.soft_limit_s:g} s have passed")

    def _of_type(self, outcome: Succeeded, schema: dict[str, Any] | None) -> Succeeded:
        """Return the answer with a codec that marks it as JSON.

        The task's line does not show that its type has a schema.
        """
        is_of_type = schema is not None and self.task.schema is None and schema == self.rules.schema
        return replace(outcome, codec=with_json(outcome.codec)) if is_of_type else outcome

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncIterator[HeldLock]:
        """Hold a lock, which one attempt of the group holds at a time, in the order of asking.

        Raises LockError for an invalid name, and for a lock that this attempt already holds. Raises
        NoTurnError if the lock is not free in half of the attempt's time: the task keeps its place
        and runs again, uncounted. A handler must not catch NoTurnError and LeaseLostError.
        """
        fence = await self.take_lock(name)
        try:
            yield HeldLock(name, fence, self.check_lock)
        finally:
            self.give_back_lock(name)

    async def take_lock(self, name: str) -> int:
        """Take a lock, which must be given back, and return its fence; handlers use `lock`."""
        self._attempt.locks.ask(require_name(name))
        self._lock_names.add(name)
        try:
            return await self._held_lock(name)
        except BaseException:
            self.give_back_lock(name)
            raise

    async def _held_lock(self, name: str) -> int:
        fence = await self._attempt.locks.wait(name, self._left_s() * _LOCK_SHARE)
        if fence is None:
            raise NoTurnError
        self.check_lock()
        return fence

    def check_lock(self) -> None:
        """Raise LeaseLostError if another attempt may hold this attempt's locks.

        After a long stall, the claim may be overdue even though the agent's lease is good.
        """
        self._require_lease()
        if self._left_s() <= 0:
            raise LeaseLostError

    def give_back_lock(self, name: str) -> None:
        """Give a lock back."""
        self._lock_names.discard(name)
        self._attempt.locks.give_back(name)

    def _require_lease(self) -> None:
        """Raise LeaseLostError if another agent may have the task."""
        if not self._attempt.may_call():
            raise LeaseLostError

    async def _call(
        self,
        place: _Place,
        sent: bytes,
        model: str,
        schema: dict[str, Any] | None,
        most_out: int | None,
        *,
        verbatim: bool,
    ) -> tuple[Reply | CallFailed, Judged]:
        """Make one call on a route; return the reply and what it means."""
        self._require_lease()
        turn, end = await self._turn(place, len(sent), most_out), CallEnd()
        traced = self._attempt.trace.call(place.route, model)
        try:
            call = self._next_call(place, sent, traced.traceparent)
            estimate_micro = self._estimate_micro(call, model)
            crash.reach("call.sending")
            try:
                reply = await place.account.llm.complete(call)
            except asyncio.CancelledError:
                self._note_killed(call, model, estimate_micro)
                raise
            crash.reach("call.answered")
            end = CallEnd(reply=reply)
            terms = self._terms(
                model, call.request_id, schema, verbatim=verbatim, estimate_micro=estimate_micro
            )
            outcome = await judged(reply, terms, self._tools.apart)
            self._learn_length(len(sent), outcome)
            end = CallEnd(reply=reply, outcome=outcome)
        finally:
            traced.ended(end)
            turn.ended(end)
        return reply, self._with_all_spent(outcome)

    def _learn_length(self, length: int, outcome: Judged) -> None:
        if tokens_in := outcome.spent.tokens_in:
            size = CallSize(task_type=self.task.type, input_bytes=length)
            model = self.task.model or self.model or ""
            self._tools.lengths.learn(model, size, tokens_in, outcome.spent.tokens_out)

    async def _turn(self, place: _Place, length: int, most_out: int | None) -> CallTurn:
        """Wait for the call's turn. Raises NoTurnError, and LeaseLostError if the lease is lost."""
        turn = await place.turns.next(length, most_out, self._left_s())
        if turn is None:
            raise NoTurnError
        if not self._attempt.may_call():
            turn.ended(None)
            raise LeaseLostError
        return turn

    def failed(self, failure: Failure, *, after_s: float = 0.0) -> Outcome:
        """Return the outcome of an attempt that failed outside a call.

        The next attempt comes after at least `after_s` seconds.
        """
        terms = self._terms(self.spent.model, self.spent.call_id)
        spent = replace(self.spent, duration_ms=terms.duration_ms)
        return outcome_of_failure(
            failure, spent, replace(terms, least_s=max(terms.least_s, after_s))
        )

    def _terms(
        self,
        model: str,
        request_id: str,
        schema: dict[str, Any] | None = None,
        *,
        verbatim: bool = False,
        estimate_micro: int = 0,
    ) -> Terms:
        tools = self._tools
        return Terms(
            model=model,
            request_id=request_id,
            duration_ms=self._elapsed_ms(),
            attempt=self._attempt.attempt,
            max_attempts=self._attempt.max_attempts,
            snoozes=self._attempt.snoozes,
            refused_alone=self._place.refused_alone,
            tiers=self._tiers,
            jitter=tools.jitter(),
            utc_s=tools.clock.utc_s(),
            least_s=self.rules.delay_s,
            schema=schema,
            verbatim=verbatim,
            prices=tools.prices,
            estimate_micro=estimate_micro,
        )

    def _left_s(self) -> float:
        """Return how much of the claim's time is left."""
        return self._attempt.left_s - self._elapsed_ms() / 1000

    def _next_call(self, place: _Place, sent: bytes, traceparent: str) -> Call:
        self._calls += 1
        attempt = self._attempt
        number = attempt.attempt + 1
        label = str(number) if self._calls == 1 else f"{number}.{self._calls}"
        name = request_id(batch=attempt.batch, key=self.task.key, attempt=label)
        timeout_s = place.account.timeout_s
        limits_s = (timeout_s, place.limit_s or timeout_s, self._left_s())
        return Call(sent, name, min(limits_s), traceparent)

    def _estimate_micro(self, call: Call, model: str) -> int:
        """Return the price of the call's input alone; 0 if its model has no price."""
        price = self._tools.prices.get(model)
        return 0 if price is None else price.estimate_micro(len(call.body))

    def _note_killed(self, call: Call, model: str, estimate_micro: int) -> None:
        """Add the estimated cost of a call that was cancelled before its answer came."""
        if not estimate_micro:
            return
        name, elapsed_ms = call.request_id[:_NAME_CHARS], self._elapsed_ms()
        killed = Spent(
            model=model[:_NAME_CHARS],
            cost_micro=estimate_micro,
            call_id=name,
            duration_ms=elapsed_ms,
            unsure_micro=estimate_micro,
        )
        self.spent = killed.after(self.spent)
        self._attempt.note_spent(self.spent)

    def _elapsed_ms(self) -> int:
        return round((self._tools.clock.now_s() - self._began_s) * 1000)

    def _with_all_spent(self, outcome: Judged) -> Judged:
        """Return the outcome with the costs of all calls of the attempt, including this one."""
        spent = outcome.spent
        if self._calls > 1:
            spent = spent.after(self.spent)
            outcome = replace(outcome, spent=spent)
        self.spent = spent
        self._attempt.note_spent(spent)
        return outcome


def _fitted(place: _Place, sent: bytes, schema: dict[str, Any] | None) -> tuple[bytes, str]:
    """Return a body and its model as a route takes them."""
    return body_for(place.account, sent, schema), place.account.model or ""


def _for_tenant(task: TaskLine, tenant: str) -> TaskLine:
    """Return the task with the tenant for which it runs, if its line names none."""
    if "tenant" in task.given or task.tenant == tenant:
        return task
    return replace(task, tenant=tenant)


Handler = Callable[[Context], Awaitable[Any]]
