"""A plain chat task, from its line to its outcome: a prompt with its text, or a body; one call.

This is the short way of the built-in chat. A task that uses more is left to the handlers, and so is
an attempt whose call failed: they go on with the call that was made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from docllm.agent.execution.start_decisions import AttemptStart
from docllm.agent.handlers.calls.call_plan import CallPlan, CallsOf
from docllm.agent.handlers.calls.permits import FREE_PERMITS, CallEnd
from docllm.agent.handlers.calls.request import body_bytes, request_id
from docllm.agent.handlers.calls.traces import NO_TRACE, AttemptTrace, CallTrace
from docllm.agent.handlers.handler_run import MadeCall
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.ports import Call, Row
from docllm.agent.ports.outcome import Released, Succeeded
from docllm.agent.quota.limit import Permit
from docllm.schemas.task.line.parsing import PLACEHOLDER
from docllm.schemas.task.record.hints import most_out
from docllm.schemas.task.result.notes import NoteKind
from docllm.schemas.text.document_text import blank_problem
from docllm.schemas.text.untrusted import as_contained

# The fields of lines that this way reads, or that do not concern a call.
_FIELDS = frozenset({
    "id", "type", "prompt", "input", "model", "route", "routes_allowed", "params", "tenant",
    "priority", "not_before", "deadline", "max_attempts", "metadata",
})  # fmt: skip
_TEXT_ALONE = {"text"}
_MAX_BYTES = 1 << 20  # of a line: a larger one may make a prompt that is too long
_CANCELLED = CallEnd()
_TRUNCATED = ((NoteKind.TRUNCATED_INPUT, ()),)


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
