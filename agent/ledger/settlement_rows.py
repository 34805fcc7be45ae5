"""The rows that a settlement writes: result, attempt, dead letter and counts. Pure.

Tested by tests/contract/test_ledger_settle.py and tests/contract/test_ledger_ends.py.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from agent.judge import fingerprint
from agent.ledger import uncounted_ends
from agent.ledger.dead_letters import Letter
from agent.outcome import Cancelled, Dead, Moved, Outcome, Released, Retry, Snooze, Spent, Succeeded
from agent.ports import Settlement
from producer.ledger import tally
from producer.ledger.tally import TallyChange, TallyKey
from schemas.task.failures import AttemptOutcome, TallyOutcome
from schemas.task.states import Status

_NAME_CHARS = 191
_TEXT_CHARS = 2000
ATTEMPT_OUTCOMES = {
    Retry: AttemptOutcome.RETRY,
    Snooze: AttemptOutcome.SNOOZE,
    Moved: AttemptOutcome.MOVED,
    Dead: AttemptOutcome.DEAD,
    Cancelled: AttemptOutcome.CANCELLED,
    Released: AttemptOutcome.RELEASED,
}
_STATES = {
    Succeeded: Status.SUCCEEDED,
    Retry: Status.RETRYING,
    Snooze: Status.PENDING,
    Released: Status.PENDING,
    Moved: Status.RETRYING,
    Cancelled: Status.CANCELLED,
}


def result(settlement: Settlement, outcome: Succeeded) -> dict[str, Any]:
    """Return the row of a task's result."""
    return {
        "task_id": settlement.row.task_id,
        "owner": settlement.owner,
        "codec": outcome.codec,
        "body": outcome.body,
    } | _spent(settlement, outcome.spent)


def attempt(
    settlement: Settlement,
    outcome: Retry | Snooze | Moved | Dead | Released | Cancelled,
    now_utc_s: float,
) -> dict[str, Any]:
    """Return the row of an attempt that did not succeed."""
    failure = uncounted_ends.failure_of(outcome)
    ended = datetime.fromtimestamp(now_utc_s, UTC).replace(tzinfo=None)
    return {
        "task_id": settlement.row.task_id,
        "owner": settlement.owner,
        "attempt": settlement.row.attempt,
        "fence": settlement.row.fence,
        "outcome": ATTEMPT_OUTCOMES[type(outcome)],
        "error_class": failure.error_class[:64],
        "error_text": _text(failure.text, _TEXT_CHARS),
        "started_at": ended - timedelta(milliseconds=outcome.spent.duration_ms),
    } | _spent(settlement, outcome.spent)


def letter(settlement: Settlement, outcome: Dead) -> Letter:
    """Return the columns of a dead letter that say why its task died."""
    failure = outcome.failure
    topic, partition, offset, timestamp_ms = settlement.origin
    return {
        "task_id": settlement.row.task_id,
        "fence": settlement.row.fence,
        "disposition": outcome.disposition,
        "error_class": failure.error_class,
        "fingerprint": fingerprint(failure.error_class, failure.text),
        "error_text": _text(failure.text, _TEXT_CHARS),
        "origin_topic": topic,
        "origin_partition": partition,
        "origin_offset": offset,
        "origin_timestamp_ms": timestamp_ms,
        "route": settlement.route,
        "model": _model(outcome.spent),
    }


def changes(
    settlement: Settlement, outcome: Outcome, dead_letter: Letter | None
) -> list[TallyChange]:
    """Return the counts of a settlement; `dead_letter` is that of a task that died."""
    spent = outcome.spent
    if dead_letter is not None:
        return [tally.died(dead_letter, costs=_costs(spent))]
    if isinstance(outcome, Released) and not spent.called:
        return []
    if isinstance(outcome, Succeeded):
        return [_change(settlement, outcome, TallyOutcome.SUCCEEDED)]
    if isinstance(outcome, Cancelled):
        return _changes_of_cancelled(settlement, outcome)
    failure = uncounted_ends.failure_of(outcome)
    stamp = fingerprint(failure.error_class, failure.text)
    return [_change(settlement, outcome, failure.error_class, stamp)]


def _changes_of_cancelled(settlement: Settlement, outcome: Cancelled) -> list[TallyChange]:
    """Return the count of a cancelled task, and the cost of its attempt apart from it.

    A replay takes the count back and does not know the model of the attempt.
    """
    paid = _change(settlement, outcome, TallyOutcome.CANCELLED)
    cancelled = TallyChange(replace(paid.key, model=""))
    return [cancelled, replace(paid, delta=0)] if outcome.spent.called else [cancelled]


def _change(
    settlement: Settlement, outcome: Outcome, name: str, stamp: bytes = tally.NO_FINGERPRINT
) -> TallyChange:
    key = TallyKey(
        settlement.row.batch_id,
        settlement.row.type,
        settlement.route,
        _STATES[type(outcome)],
        name,
        stamp,
        model=_model(outcome.spent),
        tenant=settlement.row.tenant,
    )
    return TallyChange(key, **_costs(outcome.spent))


def _costs(spent: Spent) -> dict[str, int]:
    return {
        "tokens_in": spent.tokens_in,
        "tokens_out": spent.tokens_out,
        "tokens_cached": spent.tokens_cached,
        "cost_micro": spent.cost_micro,
        "unsure_micro": spent.unsure_micro,
    }


def _spent(settlement: Settlement, spent: Spent) -> dict[str, Any]:
    return {
        "route": settlement.route,
        "model": _model(spent),
        "trace_id": _text(spent.trace_id, _NAME_CHARS),
        "duration_ms": spent.duration_ms,
        **_costs(spent),
    }


def _model(spent: Spent) -> str:
    return _text(spent.model, _NAME_CHARS)


def _text(text: str, limit: int) -> str:
    """Return text that every database takes.

    Half a surrogate pair, which broken JSON may contain, has no UTF-8.
    """
    return text.encode("utf-8", "replace").decode()[:limit]
