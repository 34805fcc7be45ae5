"""The rows that a settlement writes: result, attempt, dead letter and counts. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any

from docllm.agent.judge import fingerprint
from docllm.agent.ledger.settlements import uncounted_ends
from docllm.agent.ledger.settlements.dead_letters import LetterRow
from docllm.agent.ports import Settlement
from docllm.agent.ports.outcome import (
    AMOUNTS,
    Cancelled,
    Dead,
    Moved,
    Outcome,
    Released,
    Retry,
    Snooze,
    Spent,
    Succeeded,
)
from docllm.producer.ledger import hook_orders, tally
from docllm.producer.ledger.tally import TallyChange
from docllm.schemas.task.failures import UNTRIED, AttemptOutcome, ErrorClass, TallyOutcome
from docllm.schemas.task.hooks import COPY, Hooked, HookEvent
from docllm.schemas.task.result.answer import said, stored_json
from docllm.schemas.task.result.notes import detail
from docllm.schemas.task.states import Status
from docllm.schemas.text.packed_text import packed

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
_amounts = attrgetter(*AMOUNTS)
_STATES = {
    Retry: Status.RETRYING,
    Snooze: Status.PENDING,
    Released: Status.PENDING,
    Moved: Status.RETRYING,
}


# The end of an attempt after which a hook runs, and the name of the task's state after it.
_HOOKS: dict[type[Outcome], tuple[HookEvent, str]] = {
    Succeeded: (HookEvent.SUCCESS, "succeeded"),
    Retry: (HookEvent.RETRY, "retrying"),
    Dead: (HookEvent.DEAD, "dead"),
    Cancelled: (HookEvent.DEAD, "cancelled"),
}


def results(
    succeeded: Sequence[tuple[Settlement, Succeeded]], release: str
) -> dict[str, Sequence[Any]]:
    """Return the columns of tasks' results."""
    settlements, outcomes = zip(*succeeded, strict=True)
    spents = [outcome.spent for outcome in outcomes]
    return {
        "task_id": [settlement.row.task_id for settlement in settlements],
        "owner": [settlement.owner for settlement in settlements],
        "codec": [outcome.codec for outcome in outcomes],
        "body": [outcome.body for outcome in outcomes],
        "release_name": [release] * len(outcomes),
        "route": [settlement.route for settlement in settlements],
        "model": [_text(spent.model, _NAME_CHARS) for spent in spents],
        "trace_id": [_text(spent.call_id, _NAME_CHARS) for spent in spents],
        "duration_ms": [spent.duration_ms for spent in spents],
        **dict(zip(AMOUNTS, zip(*map(_amounts, spents), strict=True), strict=True)),
    }


def notes(succeeded: Sequence[tuple[Settlement, Succeeded]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the notes beside results; most results have none."""
    for settlement, outcome in succeeded:
        for kind, texts in outcome.notes:
            yield {"task_id": settlement.row.task_id, "kind": str(kind), "detail": detail(texts)}


def attempt(
    settlement: Settlement,
    outcome: Retry | Snooze | Moved | Dead | Released | Cancelled,
    now_utc_s: float,
    release: str,
) -> dict[str, Any]:
    """Return the row of an attempt that did not succeed."""
    failure = uncounted_ends.failure_of(outcome)
    ended = datetime.fromtimestamp(now_utc_s, UTC).replace(tzinfo=None)
    return {
        "task_id": settlement.row.task_id,
        "owner": settlement.owner,
        "attempt": settlement.row.counted_before,
        "fence": settlement.row.fence,
        "outcome": ATTEMPT_OUTCOMES[type(outcome)],
        "error_class": failure.error_class[:64],
        "error_text": _text(failure.text, _TEXT_CHARS),
        "started_at": ended - timedelta(milliseconds=outcome.spent.duration_ms),
        "release_name": release,
    } | _spent(settlement, outcome.spent)


def replies(
    chosen: Sequence[tuple[Settlement, Outcome]],
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the answers that could not be used, as far as their text is known."""
    for settlement, outcome in chosen:
        if isinstance(outcome, Retry | Snooze | Moved | Dead) and outcome.failure.reply:
            yield {
                "task_id": settlement.row.task_id,
                "owner": settlement.owner,
                "body": _text(outcome.failure.reply, _TEXT_CHARS),
            }


def late_answer(settlement: Settlement) -> dict[str, Any]:
    """Return the row of an answer that came too late; it is kept as one that cannot be used."""
    outcome = settlement.outcome
    answer = said(stored_json(outcome.codec, outcome.body)) if type(outcome) is Succeeded else ""
    return {
        "task_id": settlement.row.task_id,
        "owner": settlement.owner,
        "body": _text(answer, _TEXT_CHARS),
    }


def leaves_no_row(outcome: Outcome) -> bool:
    """Return whether this end gets no row: it cost nothing, and its task waits.

    Such an end may come often. What the task waits for stands in `waiting`, or is the output's
    store.
    """
    if isinstance(outcome, Moved | Snooze) and outcome.failure.error_class in UNTRIED:
        return not outcome.spent.has_called
    return (
        isinstance(outcome, Snooze)
        and outcome.failure.error_class == ErrorClass.OUTPUT_UNWRITABLE
        and not any(_amounts(outcome.spent))
    )


def letter(settlement: Settlement, outcome: Dead) -> LetterRow:
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
        "traceback": packed(failure.traceback),
        "provider_error": failure.provider_error.packed(),
    }


def changes(
    chosen: Sequence[tuple[Settlement, Outcome]], letters: Mapping[int, LetterRow]
) -> Iterator[TallyChange]:
    """Yield the counts of settlements; `letters` has the dead letter of each task that died.

    What an attempt has spent on a route that it left is booked there, apart from its end.
    """
    succeeded: defaultdict[tuple[int, str, str, str, str], list[Spent]] = defaultdict(list)
    for settlement, outcome in chosen:
        row, spent = settlement.row, outcome.spent
        if spent.on_left_routes or spent.calls > 1 or isinstance(outcome, Cancelled):
            yield from _changes_elsewhere(settlement, spent)
            yield from _further_calls(settlement, outcome)
        if isinstance(outcome, Succeeded):
            key_of_success = row.batch_id, row.type, settlement.route, spent.model, row.tenant
            succeeded[key_of_success].append(spent.on_this_route)
            for note, _ in outcome.notes:
                yield _change(settlement, Status.PROCESSING, TallyOutcome.NOTE, disposition=note)
        else:
            yield from _changes_of_failure(settlement, outcome, letters.get(row.task_id))
    for (batch_id, kind, route, model, tenant), of_key in succeeded.items():
        sums = (sum(amounts) for amounts in zip(*map(_amounts, of_key), strict=True))
        yield TallyChange(
            batch_id=batch_id,
            type=kind,
            route=route,
            state=Status.SUCCEEDED,
            outcome=TallyOutcome.SUCCEEDED,
            model=_text(model, _NAME_CHARS),
            tenant=tenant,
            delta=len(of_key),
            **dict(zip(AMOUNTS, sums, strict=True)),
        )


def _changes_elsewhere(settlement: Settlement, spent: Spent) -> Iterator[TallyChange]:
    for part in spent.on_left_routes:
        if any(_amounts(part.spent)):
            yield _change(
                settlement,
                Status.PENDING,
                part.error_class,
                part.spent,
                route=part.route,
                delta=0,
            )


def _further_calls(settlement: Settlement, outcome: Outcome) -> Iterator[TallyChange]:
    """Yield the calls that the end of an attempt, one count on its last route, leaves out."""
    spent = outcome.spent
    counted = 0 if isinstance(outcome, Cancelled) else 1
    calls = [(settlement.route, spent.on_this_route.calls - counted)]
    calls += [(part.route, part.spent.calls) for part in spent.on_left_routes]
    for route, number in calls:
        if number > 0:
            yield _change(
                settlement, Status.PROCESSING, TallyOutcome.CALL, route=route, delta=number
            )


def orders_of_hooks(
    group: str, chosen: Sequence[tuple[Settlement, Outcome]], hooked: Hooked
) -> list[hook_orders.HookOrder]:
    """Return the orders of the hooks that run after these ends."""
    return [
        _hook_order(group, settlement, outcome, *_HOOKS[type(outcome)])
        for settlement, outcome in chosen
        if type(outcome) in _HOOKS
        and _HOOKS[type(outcome)][0] in hooked.get(settlement.row.type, ())
    ]


def orders_of_copies(
    group: str, succeeded: Sequence[tuple[Settlement, Succeeded]]
) -> list[hook_orders.HookOrder]:
    """Return the orders of the copies of these results to the objects that their lines name."""
    return [
        {**_hook_order(group, settlement, outcome, HookEvent.OUTPUT, "succeeded"), "type": COPY[0]}
        for settlement, outcome in succeeded
    ]


def _hook_order(
    group: str, settlement: Settlement, outcome: Outcome, event: HookEvent, status: str
) -> hook_orders.HookOrder:
    row = settlement.row
    of_row = {
        "task_id": row.task_id,
        "batch_id": row.batch_id,
        "type": row.type,
        "route": settlement.route,
        "attempts": row.counted_before + (not isinstance(outcome, Cancelled)),
    }
    if not isinstance(outcome, Retry | Dead):
        return hook_orders.order(group, event, of_row, status=status)
    return hook_orders.order(
        group,
        event,
        of_row,
        status=status,
        disposition=outcome.disposition if isinstance(outcome, Dead) else "",
        error_class=outcome.failure.error_class,
        error_text=outcome.failure.text,
    )


def _changes_of_failure(
    settlement: Settlement,
    outcome: Retry | Snooze | Moved | Dead | Released | Cancelled,
    dead_letter: LetterRow | None,
) -> list[TallyChange]:
    """Return the counts of an attempt that did not succeed."""
    spent = outcome.spent
    if dead_letter is not None:
        return [tally.died(dead_letter, costs=costs(spent.on_this_route))]
    if isinstance(outcome, Released) and not spent.has_called:
        return []
    if isinstance(outcome, Cancelled):
        return _changes_of_cancelled(settlement, outcome)
    failure = uncounted_ends.failure_of(outcome)
    error_fingerprint = fingerprint(failure.error_class, failure.text)
    return [
        _change(
            settlement,
            _STATES[type(outcome)],
            failure.error_class,
            spent.on_this_route,
            fingerprint=error_fingerprint,
        )
    ]


def _changes_of_cancelled(settlement: Settlement, outcome: Cancelled) -> list[TallyChange]:
    """Return the count of a cancelled task, and the cost of its attempt apart from it.

    A replay takes the count back and does not know the model of the attempt.
    """
    end = Status.CANCELLED, TallyOutcome.CANCELLED
    cancelled, spent = _change(settlement, *end), outcome.spent
    if not spent.has_called:
        return [cancelled]
    return [cancelled, _change(settlement, *end, spent.on_this_route, delta=0)]


def _change(
    settlement: Settlement,
    state: Status,
    name: str,
    spent: Spent | None = None,
    *,
    route: str | None = None,
    **more: Any,
) -> TallyChange:
    """Return a count of a task, with what was spent, on its last route or on another one."""
    row = settlement.row
    paid = {} if spent is None else {"model": _model(spent), **costs(spent)}
    return TallyChange(
        batch_id=row.batch_id,
        type=row.type,
        route=settlement.route if route is None else route,
        state=state,
        outcome=name,
        tenant=row.tenant,
        **paid,
        **more,
    )


def costs(spent: Spent) -> dict[str, Any]:
    """Return the columns of tokens and cost."""
    return dict(zip(AMOUNTS, _amounts(spent), strict=True))


def _spent(settlement: Settlement, spent: Spent) -> dict[str, Any]:
    return {
        "route": settlement.route,
        "model": _model(spent),
        "trace_id": _text(spent.call_id, _NAME_CHARS),
        "duration_ms": spent.duration_ms,
        **costs(spent),
    }


def _model(spent: Spent) -> str:
    return _text(spent.model, _NAME_CHARS)


def _text(text: str, limit: int) -> str:
    """Return text that every database takes.

    Half a surrogate pair, which broken JSON may contain, has no UTF-8.
    """
    if text.isascii():
        return text[:limit]
    return text.encode("utf-8", "replace").decode()[:limit]
