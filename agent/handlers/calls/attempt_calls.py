"""The calls of one attempt: made on a route, judged, added up, and made again elsewhere."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from docllm.agent.handlers.attempt_time import AttemptTime
from docllm.agent.handlers.calls.call_plan import CallPlan, CallsOf
from docllm.agent.handlers.calls.judging import Judged
from docllm.agent.handlers.calls.other_route import OtherRoute, body_for
from docllm.agent.handlers.calls.permits import CallEnd, CallPermits
from docllm.agent.handlers.calls.repair import correction
from docllm.agent.handlers.calls.request import body_bytes, request_id
from docllm.agent.handlers.calls.results import (
    Answer,
    CallRefusedError,
    LeaseLostError,
    WaitedTooLongError,
)
from docllm.agent.handlers.handler_run import HandlerRun, Tools
from docllm.agent.judge import outcome_of_failure
from docllm.agent.ports import Call, CallFailed, Reply, RouteClient
from docllm.agent.ports.outcome import Dead, Failure, Outcome, Retry, Snooze, Spent, Succeeded
from docllm.agent.quota.limit import Permit
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.line.parsing import TaskLine
from docllm.schemas.task.record.hints import most_out
from docllm.schemas.task.result.codec import JSON_COMPLETION, with_json
from docllm.schemas.task.result.notes import NoteKind

_RETRY_EVERY_S = 1.0  # pause between two checks whether the route takes calls again
_SUCCESS = range(200, 300)


@dataclass(slots=True, eq=False)
class _CallTarget:
    """The target of an attempt's calls: a route, with how calls are made there, and its limits."""

    plan: CallPlan
    limit_s: float | None
    call_permits: CallPermits
    refused_alone: bool = False

    @property
    def route(self) -> str:
        """The route's name."""
        return self.plan.route

    @property
    def client(self) -> RouteClient:
        """The route's client."""
        return self.plan.client

    def fitted(self, sent: bytes, schema: dict[str, Any] | None) -> tuple[bytes, str]:
        """Return a body and its model as the route takes them."""
        return body_for(self.client, sent, schema), self.client.model or ""


class AttemptCalls:
    """Makes the calls of an attempt. `spent` adds up their cost.

    `note` takes the notes of their answers.
    """

    def __init__(
        self,
        *,
        task: TaskLine,
        rules: TypeConfig,
        run: HandlerRun,
        tools: Tools,
        time: AttemptTime,
        note: Callable[..., None],
    ) -> None:
        self.spent = Spent()
        self._note_beside = note
        self._task = task
        self._rules = rules
        self._run = run
        self._tools = tools
        self._time = time
        self._target = _CallTarget(
            tools.plan(task.type, run.route), run.limit_s, run.call_permits, run.refused_alone
        )
        # The client of the route to which the task's model belongs.
        self._first = None if run.is_on_fallback else self._target.client
        self._begun = 0
        self._made_before = run.first_call
        self._left: dict[str, ErrorClass] = {}  # the routes that the attempt has left, and why

    @property
    def has_begun(self) -> bool:
        """Whether a call was sent."""
        return self._begun > 0

    @property
    def route(self) -> str:
        """The route of the next call."""
        return self._target.route

    @property
    def client(self) -> RouteClient:
        """The client of the next call's route."""
        return self._target.client

    @property
    def model(self) -> str:
        """The model of the task on its first route, else of the route; empty without either."""
        named = self._task.model if self.client is self._first else None
        return named or self.client.model or ""

    async def complete(
        self, body: Mapping[str, Any], *, schema: dict[str, Any] | None, verbatim: bool
    ) -> Answer:
        """Make a chat completion and return its answer; see `Context.complete`."""
        sent, model, output_limit = body_bytes(body), str(body.get("model") or ""), most_out(body)
        del body  # another copy of the text would wait for the answer
        target = self._target
        if target.client is not self._first:
            sent, model = target.fitted(sent, schema)
        may_correct = not verbatim
        while True:
            reply, outcome = await self._call(
                target, sent, model, schema, output_limit, verbatim=verbatim
            )
            if isinstance(outcome, Succeeded):
                answer = reply.body if isinstance(reply, Reply) else b""
                is_json = schema is not None and not verbatim
                codec = JSON_COMPLETION if is_json else outcome.codec
                return Answer(answer, self._of_type(outcome, schema), codec)
            corrected = correction(sent, reply, outcome, schema) if may_correct else None
            if corrected is not None and not self._time.overdue:
                sent, may_correct = corrected, False
                continue
            target = self._following_target(target, reply, outcome)
            sent, model = target.fitted(sent, schema)

    async def wait_for_another(self, refused: CallRefusedError, wait_s: float) -> None:
        """Wait until the route takes another call; see `Context.call_again`."""
        target, following = self._target, None
        while following is None:
            if wait_s >= self._time.left_s:
                raise refused
            await self._tools.clock.sleep(wait_s)
            if self._target is not target:
                return  # another call of the handler has asked meanwhile
            self._require_lease()
            following, wait_s = self._run.retry_on_route(refused.outcome), _RETRY_EVERY_S
        if not isinstance(following, OtherRoute):
            raise CallRefusedError(following) from refused
        self._target = replace(
            target, limit_s=following.limit_s, call_permits=following.call_permits
        )

    def failed(self, failure: Failure, *, after_s: float) -> Outcome:
        """Return the outcome of an attempt that failed outside a call, after all its calls."""
        facts = self._target.plan.facts(
            self._calls_of(self._target),
            self._tools.clock.now_s(),
            model=self.spent.model,
            request_id=self.spent.call_id,
        )
        spent = replace(self.spent, duration_ms=facts.duration_ms)
        return outcome_of_failure(
            failure, spent, replace(facts, min_retry_s=max(facts.min_retry_s, after_s))
        )

    def _following_target(
        self, target: _CallTarget, reply: Reply | CallFailed, outcome: Retry | Snooze | Dead
    ) -> _CallTarget:
        """Return where to make a failed call again. Raises CallRefusedError if no route is left."""
        if self._target.route == target.route:
            was_answered = isinstance(reply, Reply) and reply.status in _SUCCESS
            self._leave(target, outcome, was_answered=was_answered)
        # Otherwise, a parallel call of the handler has already left the route.
        return self._target

    def _leave(
        self, target: _CallTarget, outcome: Retry | Snooze | Dead, *, was_answered: bool
    ) -> None:
        """Switch to another route after a failure.

        Raises CallRefusedError if no route is left.
        """
        following = self._run.route_after_failure(outcome)
        if not isinstance(following, OtherRoute):
            raise CallRefusedError(following, was_answered=was_answered)
        self._left[target.route] = outcome.failure.error_class
        self._note(self.spent.leaving_route(target.route, outcome.failure.error_class))
        plan = self._tools.plan(self._task.type, following.name)
        self._target = _CallTarget(plan, following.limit_s, following.call_permits)

    def _of_type(self, outcome: Succeeded, schema: dict[str, Any] | None) -> Succeeded:
        """Return the answer with a codec that marks it as JSON.

        The task's line does not show that its type has a schema.
        """
        is_of_type = (
            schema is not None and self._task.schema is None and schema == self._rules.schema
        )
        return replace(outcome, codec=with_json(outcome.codec)) if is_of_type else outcome

    def _require_lease(self) -> None:
        """Raise LeaseLostError if another agent may have the task."""
        if not self._run.may_call():
            raise LeaseLostError

    async def _call(
        self,
        target: _CallTarget,
        sent: bytes,
        model: str,
        schema: dict[str, Any] | None,
        output_limit: int | None,
        *,
        verbatim: bool,
    ) -> tuple[Reply | CallFailed, Judged]:
        """Make one call on a route; return the reply and what it means."""
        if (made := self._made_before) is not None:
            self._made_before, self._begun = None, 1
            return made.reply, self._with_all_spent(target, made.outcome)
        self._require_lease()
        permit, end = await self._permit(target, len(sent), output_limit), CallEnd()
        traced = self._run.trace.call(target.route, model)
        try:
            reply, outcome = await self._made(
                target,
                self._next_call(target, sent, traced.traceparent),
                model,
                schema,
                verbatim=verbatim,
            )
            end = CallEnd(reply=reply, outcome=outcome)
        finally:
            traced.ended(end)
            target.call_permits.release(permit, end)
        return reply, self._with_all_spent(target, outcome)

    async def _made(
        self,
        target: _CallTarget,
        call: Call,
        model: str,
        schema: dict[str, Any] | None,
        *,
        verbatim: bool,
    ) -> tuple[Reply | CallFailed, Judged]:
        attempt = self._calls_of(target)
        reply, outcome = await target.plan.make(
            call,
            attempt,
            model=model,
            schema=schema,
            verbatim=verbatim,
            note_killed=lambda killed: self._note(self._all_spent(target, killed)),
        )
        if attempt.is_cut:
            self._note_beside(NoteKind.TRUNCATED_INPUT)
        return reply, outcome

    def _calls_of(self, target: _CallTarget) -> CallsOf:
        run = self._run
        return CallsOf(
            run.counted_before,
            run.max_attempts,
            run.snoozes,
            self._time.began_s,
            target.refused_alone,
        )

    async def _permit(self, target: _CallTarget, length: int, output_limit: int | None) -> Permit:
        """Wait for a permit. Raises WaitedTooLongError, and LeaseLostError if the lease is lost."""
        permit = await target.call_permits.acquire(length, output_limit, self._time.of_claim_s)
        if permit is None:
            raise WaitedTooLongError
        if not self._run.may_call():
            target.call_permits.release(permit, None)
            raise LeaseLostError
        return permit

    def _next_call(self, target: _CallTarget, sent: bytes, traceparent: str) -> Call:
        self._begun += 1
        number = self._run.counted_before + 1
        label = str(number) if self._begun == 1 else f"{number}.{self._begun}"
        name = request_id(batch=self._run.batch, key=self._task.key, attempt=label)
        timeout_s = target.client.timeout_s
        limits_s = (timeout_s, target.limit_s or timeout_s, self._time.of_claim_s)
        return Call(sent, name, min(limits_s), traceparent)

    def _with_all_spent(self, target: _CallTarget, outcome: Judged) -> Judged:
        """Return the outcome with the costs of all calls of the attempt, including this one."""
        spent = self._all_spent(target, outcome.spent)
        self._note(spent)
        return replace(outcome, spent=spent)

    def _all_spent(self, target: _CallTarget, of_call: Spent) -> Spent:
        """Return the costs of all calls of the attempt, including this one, by route."""
        if target.route in self._left:
            return self.spent.plus_on_left(of_call, target.route, self._left[target.route])
        return of_call.plus(self.spent)

    def _note(self, spent: Spent) -> None:
        """Note the cost of the attempt so far: a cancelled attempt has no outcome to carry it."""
        self.spent = spent
        self._run.note_spent(spent)
