"""Makes an outcome of a reply or a failed call: read, classify, look up the class, decide."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from docllm.agent.judge import completion, snooze_delay
from docllm.agent.judge.classes import CLASSES, Action
from docllm.agent.judge.tiers import IN_LEDGER, Tier, choose, ledger_delay, retry_delay
from docllm.agent.ports import CallFailed, Reply
from docllm.agent.ports.outcome import (
    Dead,
    Failure,
    Retry,
    Snooze,
    Spent,
    Succeeded,
)
from docllm.schemas.refusals.signals import classify
from docllm.schemas.refusals.words import unquoted
from docllm.schemas.settings.config import Price
from docllm.schemas.settings.wordings import NO_WORDINGS, Wordings
from docllm.schemas.task.failures import Disposition, ErrorClass
from docllm.schemas.task.result.answer import beginning, said
from docllm.schemas.task.result.codec import pack_result
from docllm.schemas.text.untrusted import as_contained, contained
from docllm.schemas.text.wording import one_line

_SUCCESS = range(200, 300)
_OK = 200
_NOT_FOUND = 404
# These statuses may concern one task alone: a firewall, or a model that only this task names. 401
# concerns the key, which all tasks share.
_MAY_BE_OF_ONE_TASK = frozenset({400, 403, 404})
_CALL_ID_HEADERS = ("x-request-id", "request-id", "apim-request-id")
_NAME_CHARS = 191
_DOUBT_CHARS = 400
# The provider may have worked on these calls and bills them, but its usage did not arrive.
_MAYBE_BILLED = frozenset({ErrorClass.AMBIGUOUS, ErrorClass.REPLY_TOO_LARGE})
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(slots=True)
class JudgeFacts:
    """The facts that the judge needs besides the answer.

    `counted_before` is how many attempts were counted before this one, of the `max_attempts` that
    the task may have. `snoozes` is how often in a row the task was snoozed. `refused_alone` says
    that it met AUTH before and that its route has answered other calls since. `min_retry_s` is the
    minimum wait before a retry. `jitter` is from 0 to 1. `utc_s` is the time now, for a Retry-After
    that is a date. `prices` are by model: by the provider's name for it, or else by the task's.
    `least_price_micro` is what the call costs at least if the provider does not say what it used.
    With `strict`, nothing is taken off around an answer. `wordings` are the route's.
    """

    model: str
    request_id: str
    duration_ms: int
    counted_before: int
    max_attempts: int
    snoozes: int
    tiers: Sequence[Tier]
    jitter: float
    utc_s: float
    refused_alone: bool = False
    min_retry_s: float = 0.0
    schema: dict[str, Any] | None = None
    verbatim: bool = False
    strict: bool = False
    prices: Mapping[str, Price] = field(default_factory=dict)
    least_price_micro: int = 0
    wordings: Wordings = NO_WORDINGS


def judge(reply: Reply | CallFailed, facts: JudgeFacts) -> Succeeded | Retry | Snooze | Dead:
    """Return the outcome of a call. A reply on which a library fails is BAD_OUTPUT."""
    try:
        return _judge(reply, facts)
    except BaseException as error:  # noqa: BLE001 - any error is this reply's alone
        failure = completion.judging_failed(as_contained(error))
        if isinstance(reply, Reply):
            failure = replace(failure, reply=beginning(reply.body))
        return outcome_of_failure(failure, _unsure(facts), facts)


def unjudged(
    failure: Failure,
    reply: Reply,
    judged: Succeeded | Retry | Snooze | Dead | None,
    facts: JudgeFacts,
) -> Retry | Snooze | Dead:
    """Return the outcome of a reply that could not be checked against its schema.

    `judged` is the outcome without the schema, from which the cost is taken; None if there is none.
    """
    failure = replace(failure, reply=beginning(reply.body))
    return outcome_of_failure(failure, _unsure(facts) if judged is None else judged.spent, facts)


def _judge(reply: Reply | CallFailed, facts: JudgeFacts) -> Succeeded | Retry | Snooze | Dead:
    if isinstance(reply, CallFailed):
        failure = Failure(reply.error_class, one_line(reply.text))
        is_maybe_billed = failure.error_class in _MAYBE_BILLED
        spent = _unsure(facts) if is_maybe_billed else _spent(facts, _NO_HEADERS)
        return outcome_of_failure(failure, spent, facts)
    if reply.status not in _SUCCESS:
        return outcome_of_failure(
            classified(reply, facts.wordings), _spent(facts, reply.headers), facts, reply.headers
        )
    completion_read = completion.read_completion(
        reply.body, schema=facts.schema, verbatim=facts.verbatim, strict=facts.strict
    )
    spent = _spent(facts, reply.headers, completion_read)
    if not spent.tokens_in and completion_read.is_of_unknown_cost:
        spent = _estimated(spent, facts)
    if completion_read.failure is not None:
        failure = taught(completion_read.failure, facts.wordings)
        if reply.status != _OK and failure.error_class == ErrorClass.SERVER:
            failure = replace(failure, text=one_line(f"status {reply.status}: {failure.text}"))
        if failure.error_class in completion.ANSWERED:
            failure = replace(failure, reply=said(reply.body))
        return outcome_of_failure(failure, spent, facts, reply.headers)
    body, codec = pack_result(completion_read.codec, reply.body)
    return Succeeded(body, codec, spent, oddities=completion_read.oddities)


def classified(reply: Reply, wordings: Wordings = NO_WORDINGS) -> Failure:
    """Return the failure of an unsuccessful reply; the route's own wordings come first.

    If its body cannot be parsed, the status alone decides.
    """
    try:
        with contained():
            refusal = classify(reply.status, reply.body, cut=reply.cut)
    except Exception:  # noqa: BLE001 - the status alone says what the route must know
        refusal = classify(reply.status, b"")
    failure = taught(completion.failure_of(refusal), wordings)
    if failure.error_class == ErrorClass.AUTH and reply.status in _MAY_BE_OF_ONE_TASK:
        failure = replace(failure, may_be_of_task=True)
    if reply.status == _NOT_FOUND and reply.unversioned:
        return replace(failure, text=one_line(f"{failure.text} (does base_url lack /v1?)"))
    return failure


def taught(failure: Failure, wordings: Wordings) -> Failure:
    """Return the failure with the class that a wording of its route gives it.

    The failure's text is matched, as a person sees it, without what it quotes: a document that is
    repeated there must not choose the class.
    """
    if not wordings or failure.is_of_answer:
        return failure
    error_class = wordings.class_of(unquoted(failure.text))
    return failure if error_class is None else replace(failure, error_class=error_class)


def outcome_of_failure(
    failure: Failure, spent: Spent, facts: JudgeFacts, headers: Mapping[str, str] = _NO_HEADERS
) -> Retry | Snooze | Dead:
    """Return the outcome of a failed attempt, as the table of classes says.

    A task that is refused alone (`facts.refused_alone`) is tried again and counted: its route's key
    is accepted at times, and the next call may meet such a time.
    """
    if failure.may_be_of_task and facts.refused_alone:
        text = one_line(f"{failure.text} (refused again, while the route answered other calls)")
        failure = replace(failure, error_class=ErrorClass.BAD_REQUEST, text=text)
        return _counted(failure, spent, facts, headers, tier_of=0)
    action = CLASSES[failure.error_class].action
    if action is Action.GIVE_UP:
        return Dead(failure, spent)
    if action is Action.SNOOZE:
        failure = _with_doubt(failure, headers, facts)
        delay_s = snooze_delay.delay(
            headers,
            snoozes=facts.snoozes,
            jitter=facts.jitter,
            utc_s=facts.utc_s,
            limits=failure.error_class == ErrorClass.RATE,
        )
        return Snooze(failure, spent, delay_s)
    return _counted(failure, spent, facts, headers, tier_of=facts.counted_before)


def _counted(
    failure: Failure, spent: Spent, facts: JudgeFacts, headers: Mapping[str, str], *, tier_of: int
) -> Retry | Dead:
    """Return a retry in the tier after so many attempts, or the end after the last attempt."""
    if facts.counted_before + 1 >= facts.max_attempts:
        return Dead(failure, spent, Disposition.EXHAUSTED)
    asked_s = snooze_delay.asked_for(headers, facts.utc_s) or 0.0
    wanted_s = max(facts.min_retry_s, snooze_delay.believed(asked_s))
    if wanted_s > facts.tiers[-1].delay_s:  # it would hold up the topic's other tasks
        delay_s = ledger_delay(wanted_s=wanted_s, jitter=facts.jitter)
        return Retry(failure, spent, IN_LEDGER, delay_s)
    tier = choose(facts.tiers, counted_before=tier_of, wanted_s=wanted_s)
    delay_s = retry_delay(tier, wanted_s=wanted_s, jitter=facts.jitter)
    return Retry(failure, spent, tier.name, delay_s)


def _with_doubt(failure: Failure, headers: Mapping[str, str], facts: JudgeFacts) -> Failure:
    """Return the failure; its text names a wait that is too long to be believed."""
    asked_s = snooze_delay.asked_for(headers, facts.utc_s) if headers else None
    if asked_s is None or asked_s <= snooze_delay.BELIEVED_S:
        return failure
    waits = f"asked for a wait of {asked_s / 3600:.1f} h; asked again after 10 min"
    return replace(failure, text=one_line(f"{failure.text[:_DOUBT_CHARS]} ({waits})"))


def _spent(
    facts: JudgeFacts, headers: Mapping[str, str], read: completion.Completion | None = None
) -> Spent:
    call_id = facts.request_id
    for name in _CALL_ID_HEADERS:
        if given := headers.get(name):
            call_id = given
            break
    call_id = call_id[:_NAME_CHARS]
    if read is None:
        return Spent(model=facts.model, call_id=call_id, duration_ms=facts.duration_ms, calls=1)
    prices = facts.prices
    price = (prices.get(read.model) or prices.get(facts.model)) if prices else None
    unpriced = 0
    if price is None:
        failure = read.failure
        is_billed = failure is None or read.tokens_in or failure.error_class in completion.ANSWERED
        unpriced = 1 if is_billed else 0
    return Spent(
        model=(read.model or facts.model)[:_NAME_CHARS],
        tokens_in=read.tokens_in,
        tokens_out=read.tokens_out,
        cost_micro=price.cost_micro(read.tokens_in, read.tokens_out) if price else 0,
        call_id=call_id,
        duration_ms=facts.duration_ms,
        tokens_cached=read.tokens_cached,
        calls=1,
        unpriced=unpriced,
    )


def _unsure(facts: JudgeFacts) -> Spent:
    """Return the cost of a call that may be billed although nothing is known of its usage."""
    return _estimated(_spent(facts, _NO_HEADERS), facts)


def _estimated(spent: Spent, facts: JudgeFacts) -> Spent:
    estimate, unpriced = facts.least_price_micro, int(facts.model not in facts.prices)
    return replace(spent, cost_micro=estimate, unsure_micro=estimate, unpriced=unpriced)
