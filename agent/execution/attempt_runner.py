"""One attempt at one task, from the claimed delivery to its outcome.

A plain chat task has a prompt with its text, or a body, and needs one call: it goes the short way,
`plain_call`. A task that uses more is left to the handlers, and so is an attempt whose call failed:
they go on with the call that was made.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from docllm.agent.execution.attempt_routes import AttemptRoutes
from docllm.agent.execution.lock_requests import ResourceLocks
from docllm.agent.execution.observability.attempt_traces import AttemptTraces
from docllm.agent.execution.output_writer import Outputs
from docllm.agent.execution.start_decisions import AttemptStart
from docllm.agent.handlers import HandlerRun, Handlers
from docllm.agent.handlers.calls.call_plan import CallPlan, CallsOf
from docllm.agent.handlers.calls.permits import FREE_PERMITS, CallEnd
from docllm.agent.handlers.calls.request import body_bytes, request_id
from docllm.agent.handlers.calls.traces import NO_TRACE, AttemptTrace, CallTrace
from docllm.agent.handlers.handler_run import Inherited, MadeCall
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.ports import Call, Clock, Row
from docllm.agent.ports.outcome import (
    Dead,
    Failure,
    HandlerState,
    Outcome,
    Released,
    Spent,
    Succeeded,
    unseen,
)
from docllm.agent.quota.limit import Permit
from docllm.schemas.settings.claim_time import SETTLE_MARGIN_S
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.line.parsing import DEFAULT_TENANT, PLACEHOLDER
from docllm.schemas.task.record.hints import most_out
from docllm.schemas.task.result.notes import NoteKind
from docllm.schemas.text.document_text import blank_problem
from docllm.schemas.text.untrusted import as_contained

_SETTLE_S = 5.0  # kept at a claim's end for the settle, after an answer's write

# The fields of lines that the short way reads, or that do not concern a call.
_FIELDS = frozenset({
    "id", "type", "prompt", "input", "model", "route", "routes_allowed", "params", "tenant",
    "priority", "not_before", "deadline", "max_attempts", "metadata",
})  # fmt: skip
_TEXT_ALONE = {"text"}
_MAX_BYTES = 1 << 20  # of a line: a larger one may make a prompt that is too long
_CANCELLED = CallEnd()
_TRUNCATED = ((NoteKind.TRUNCATED_INPUT, ()),)


# Returns what the handler of a task kept when it came back the last time.
StateOf = Callable[[int], Awaitable[HandlerState | None]]


async def no_state(_task_id: int) -> None:
    """Know of no task that came back."""


@dataclass(kw_only=True, eq=False)
class AttemptRunner:
    """Runs attempts: those of plain chat tasks by itself, all others through the handlers."""

    handlers: Handlers
    locks: ResourceLocks
    outputs: Outputs
    clock: Clock
    claim_s: float
    state_of: StateOf = no_state
    traces: AttemptTraces | None = None

    async def write(self, delivery: Delivery, row: Row, answer: Succeeded) -> Outcome:
        """Write the answer of a claimed delivery to its output; return how the attempt ends."""
        until_s = delivery.claimed_at_s + self.claim_s - _SETTLE_S
        try:
            return await self.outputs.write(answer, row, owner=delivery.owner, until_s=until_s)
        except asyncio.CancelledError:
            if self.handlers.runs_again(row.type):
                raise
            return unseen("its agent stopped before the answer was written", answer.spent)

    async def run(self, delivery: Delivery, start: AttemptStart, routes: AttemptRoutes) -> Outcome:
        """Run the attempt and return its outcome; `routes` decides about each failed call.

        A plain call that is cancelled raises CancelledError; `delivery.spent` then says what it has
        spent, and the caller releases the claim.
        """
        row = delivery.row
        if row is None or delivery.value is None:
            return Dead(
                Failure(ErrorClass.NO_INPUT, "the ledger has no input for this task"), Spent()
            )
        now_s = self.clock.now_s()
        left_s = delivery.claimed_at_s + self.claim_s - SETTLE_MARGIN_S - now_s
        if left_s <= 0:
            return Released()
        plan, first = self.handlers.plain_plan(row.type, delivery.route), None
        traces = self.traces
        trace = NO_TRACE if traces is None else traces.of(row.task_id, delivery.owner)
        if plan is not None and not row.suspect and not row.output_uri:
            on_fallback = delivery.route != delivery.plan.route
            request = plain_request(
                delivery.line, len(delivery.value), plan, is_on_fallback=on_fallback
            )
            delivery.line = None  # not kept during the call
            if request is not None:
                made = await plain_call(
                    delivery, row, start, plan, request, trace=trace, now_s=now_s, left_s=left_s
                )
                if not isinstance(made, MadeCall):
                    return made
                first = made
        return await self._run_handler(delivery, row, start, routes, left_s, trace, first)

    async def _run_handler(
        self,
        delivery: Delivery,
        row: Row,
        start: AttemptStart,
        routes: AttemptRoutes,
        left_s: float,
        trace: AttemptTrace,
        first: MadeCall | None,
    ) -> Outcome:
        """Run the handler of the task's type; `first` is a call that was made for it."""
        state = None
        if row.fence and self.handlers.may_come_back(row.type):  # a come-back raises the fence
            asked_s = self.clock.now_s()
            state = await self.state_of(row.task_id)
            left_s -= self.clock.now_s() - asked_s
        locks = self.locks.of(row.task_id, delivery.owner)
        run = HandlerRun(
            first_call=first,
            task_id=row.task_id,
            batch=row.batch,
            value=delivery.value or b"",
            counted_before=row.counted_before,
            max_attempts=row.max_attempts,
            snoozes=delivery.snoozes,
            left_s=left_s,
            route=delivery.route,
            is_on_fallback=delivery.route != delivery.plan.route,
            is_changed=row.changed,
            limit_s=start.limit_s,
            refused_alone=start.refused_alone,
            may_call=lambda: delivery.may_call(self.clock.now_s()),
            note_spent=delivery.note_spent,
            route_after_failure=routes.route_after_failure,
            retry_on_route=routes.retry_on_route,
            call_permits=start.call_permits,
            inherited=Inherited(
                depth=row.depth,
                tenant=row.tenant or DEFAULT_TENANT,
                lane=row.lane,
                routes_allowed=row.routes_allowed,
            ),
            locks=locks,
            output_uri=row.output_uri,
            output_refusal=self.outputs.refusal,
            agents_lost=row.lease_losses,
            losses=row.losses,
            trace=trace,
            state=state,
        )
        try:
            return await self.handlers.run(run)
        finally:
            locks.close()


@dataclass(slots=True)
class PlainRequest:
    """The body of a plain task's call, its model, and how many tokens its answer may have.

    With `verbatim`, any answer that is not an error is the result.
    """

    body: bytes
    model: str
    most_out: int | None
    verbatim: bool = False


def plain_request(
    line: Mapping[str, Any] | None, line_bytes: int, plan: CallPlan, *, is_on_fallback: bool
) -> PlainRequest | None:
    """Return what a task's one call sends; None if the task is not plain.

    The line was accepted before, and the claim has compared its digest. So its checks are left out;
    a line on which this fails is left to the handlers, which name what is wrong.
    """
    if line is None or line_bytes > _MAX_BYTES:
        return None
    try:
        return _request(line, plan, is_on_fallback=is_on_fallback)
    except BaseException as error:  # noqa: BLE001 - the handlers read it again, and say what it is
        as_contained(error)
        return None


def _request(
    line: Mapping[str, Any], plan: CallPlan, *, is_on_fallback: bool
) -> PlainRequest | None:
    if "body" in line:
        is_plain = not is_on_fallback and "time_limit_s" not in line
        return _openai_request(line["body"], plan) if is_plain else None
    prompt, source = line.get("prompt"), line.get("input")
    if prompt is None:
        prompt = plan.rules.prompt
    if not prompt or "{{" in prompt or not _FIELDS.issuperset(line):
        return None
    places = prompt.count(PLACEHOLDER)
    if places == 1 and type(source) is dict and source.keys() == _TEXT_ALONE:
        if blank_problem(source["text"]):
            return None
        prompt = prompt.replace(PLACEHOLDER, source["text"])
    elif places or source is not None:
        return None
    model = None if is_on_fallback else line.get("model")
    body: dict[str, Any] = {}
    if model := model or plan.client.model:
        body["model"] = model
    body["messages"] = [{"role": "user", "content": prompt}]
    if not (params := line.get("params")):
        return PlainRequest(body_bytes(body), model or "", None)
    return PlainRequest(body_bytes(body | params), model or "", most_out(params))


def _openai_request(given: dict[str, Any], plan: CallPlan) -> PlainRequest:
    """Return what a line of OpenAI's format sends: its body, with a model, which comes first."""
    model = given.get("model") or plan.client.model
    named = {"model": model} if model else {}
    return PlainRequest(
        body_bytes(named | given | named), model or "", most_out(given), verbatim=True
    )


async def plain_call(
    delivery: Delivery,
    row: Row,
    start: AttemptStart,
    plan: CallPlan,
    request: PlainRequest,
    *,
    trace: AttemptTrace,
    now_s: float,
    left_s: float,
) -> Succeeded | Released | MadeCall:
    """Make the call of a plain task; return its outcome, or the call with which handlers go on.

    The attempt begins at `now_s`, and `left_s` is the time that is left for it.
    """
    attempt = CallsOf(
        row.counted_before, row.max_attempts, delivery.snoozes, now_s, start.refused_alone
    )
    permit: Permit | None = None
    traced: CallTrace = NO_TRACE
    end: CallEnd | None = _CANCELLED
    if start.call_permits is not FREE_PERMITS:
        permit = await start.call_permits.acquire(len(request.body), request.most_out, left_s)
        if permit is None:
            return Released()
        left_s -= plan.tools.clock.now_s() - now_s
        now_s = plan.tools.clock.now_s()
    try:
        if delivery.lease is None or not delivery.lease.may_call(now_s):
            end = None
            return Released()
        if trace is not NO_TRACE:
            traced = trace.call(plan.route, request.model)
        timeout_s = start.route_call.limit_s or plan.client.timeout_s
        call = Call(
            request.body,
            request_id(batch=row.batch, key=row.key_text, attempt=str(row.counted_before + 1)),
            min(timeout_s, plan.client.timeout_s, left_s),
            traced.traceparent,
        )
        reply, outcome = await plan.make(
            call,
            attempt,
            model=request.model,
            verbatim=request.verbatim,
            note_killed=delivery.note_spent,
        )
        if permit is not None or traced is not NO_TRACE:
            end = CallEnd(reply=reply, outcome=outcome)
    finally:
        if traced is not NO_TRACE:
            traced.ended(end or _CANCELLED)
        if permit is not None:
            start.call_permits.release(permit, end)
    if type(outcome) is not Succeeded:
        return MadeCall(reply, outcome, attempt.began_s)
    delivery.spent = outcome.spent
    return replace(outcome, notes=_TRUNCATED) if attempt.is_cut else outcome
