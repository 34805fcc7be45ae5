"""Settles, as SQL: one transaction writes a page of outcomes under their claims' owners.

A settlement is accepted if the row still has the claim's owner and is processing, or is pending
because it was reaped and nobody has claimed it since. Otherwise it is an echo of an earlier try
that had committed, or it is superseded. Zero rows changed is a normal, named outcome. If the task
is dead, the late answer of a lost claim is kept beside its attempt, for a person.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sqlalchemy import Connection, and_, bindparam, delete, exists, func, null, select, update

from docllm.agent.judge import Tier
from docllm.agent.ledger.counts import release_counts
from docllm.agent.ledger.guards import loss_deaths
from docllm.agent.ledger.guards.decisions import hold_back
from docllm.agent.ledger.settlements import (
    dead_letters,
    follow_ups,
    state_changes,
    uncounted_ends,
    written_rows,
)
from docllm.agent.ledger.settlements.state_changes import carrier, of_kind
from docllm.agent.ports import Settlement, Verdict
from docllm.agent.ports.outcome import (
    Cancelled,
    Dead,
    Moved,
    Outcome,
    Released,
    Retry,
    Snooze,
    Succeeded,
)
from docllm.producer.ledger import hook_orders, joins, outbox, tally
from docllm.producer.ledger.cancel import cancelled_among
from docllm.producer.ports import Item, Order
from docllm.schemas.ledger.bulk import insert_rows
from docllm.schemas.ledger.by_ids import execute_by_ids
from docllm.schemas.ledger.tables import reply, task, task_attempt, task_result
from docllm.schemas.task.failures import AttemptOutcome, ErrorClass
from docllm.schemas.task.hooks import Hooked
from docllm.schemas.task.joins import JoinRole
from docllm.schemas.task.record.topics import RESULTS
from docllm.schemas.task.states import SETTLES, Status

# Built once, as in `state_changes`.
_LOCK = (
    select(task.c.id, task.c.status, task.c.owner, task.c.fence)
    .where(task.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(task.c.id)
    .with_for_update()
)

_DEAD = int(Status.DEAD)
_REAPED = int(Status.PENDING)  # the state of a claimed task that waits again
_OF_CLAIM = and_(
    task_attempt.c.task_id == bindparam("of_task"),
    task_attempt.c.lost_owner == bindparam("of_owner"),
)
# A claim whose answer was lost is made again under its number, and so may have been reset twice.
_UNLOSE = (
    update(task)
    .where(task.c.id == bindparam("of_task"))
    .values(losses=task.c.losses - select(func.count()).where(_OF_CLAIM).scalar_subquery())
)
_FOUND = delete(task_attempt).where(_OF_CLAIM)
_CUT_OFF = (
    update(task)
    .where(task.c.id.in_(bindparam("ids", expanding=True)))
    .values(losses=task.c.losses + 1)
)
_HAS_REPLY = exists().where(
    reply.c.task_id == task_attempt.c.task_id, reply.c.owner == task_attempt.c.lost_owner
)
_LATE = (
    select(task_attempt.c.task_id, task_attempt.c.lost_owner)
    .where(task_attempt.c.task_id.in_(bindparam("ids", expanding=True)))
    .where(task_attempt.c.lost_owner.in_(bindparam("owners", expanding=True)))
    .where(~_HAS_REPLY)
)
_NO_ROW = (None, None, None, None)
NO_HOOKS: Hooked = MappingProxyType({})

Unsuccessful = Retry | Snooze | Moved | Dead
UncountedEnd = Released | Cancelled
_ENDS = Succeeded | Dead | Cancelled
_BY_BATCH = Retry | Snooze | Moved | Released | Cancelled


def settle(
    connection: Connection,
    group: str,
    settlements: Sequence[Settlement],
    now_utc_s: float,
    longest_tier: Tier,
    first_id: int = 0,
    hooked: Hooked = NO_HOOKS,
    *,
    release: str = "",
    streams_results: bool = False,
) -> tuple[list[Verdict], list[Order]]:
    """Write the accepted outcomes; return a verdict for each settlement, and the publish orders.

    The task ids from `first_id` on are free for the follow-ups of the settlements. `hooked` are the
    hooks that these ends order. `release` is the label of this agent's release. With
    `streams_results`, the lines of tasks that succeed are ordered; those of dead tasks go with
    their letters.
    """
    cancelled = follow_ups.lock_batches(connection, settlements)
    accepted, new_follow_ups = follow_ups.insert(
        connection, _accepted(connection, settlements), cancelled, first_id
    )
    chosen = _final_outcomes(connection, group, accepted, longest_tier)
    succeeded = of_kind(chosen, Succeeded)
    state_changes.write_successes(connection, succeeded, release)
    letters: Mapping[int, dead_letters.LetterRow] = {}
    orders: list[Order] = []
    if len(succeeded) < len(chosen):
        others = [pair for pair in chosen if not isinstance(pair[1], Succeeded)]
        _count_cut_off(connection, accepted)
        state_changes.write(connection, group, others)
        _write_attempts(connection, others, now_utc_s, release)
        letters = dead_letters.write(
            connection,
            [
                written_rows.letter(settlement, outcome)
                for settlement, outcome in of_kind(others, Dead)
            ],
        )
        orders += _write_orders(connection, group, others)
    orders += follow_ups.complete(connection, group, new_follow_ups)
    ended_siblings = [
        settlement.row.task_id
        for settlement, outcome in chosen
        if settlement.row.join_role == JoinRole.SIBLING and isinstance(outcome, _ENDS)
    ]
    if ended_siblings:
        orders += joins.after_end(connection, group, ended_siblings)
    if streams_results:
        items = [
            Item(outbox.TASK, settlement.row.task_id, settlement.row.fence)
            for settlement, _ in succeeded
        ]
        orders += outbox.place(connection, group, RESULTS, items)
    if hooked:
        hook_orders.place(connection, written_rows.orders_of_hooks(group, chosen, hooked))
    if copied := [pair for pair in succeeded if pair[1].output_uri]:
        hook_orders.place(connection, written_rows.orders_of_copies(group, copied))
    tally.write(connection, written_rows.changes(chosen, letters))
    release_counts.write(connection, group, chosen, release)
    return _verdicts(connection, settlements, chosen), orders


def _final_outcomes(
    connection: Connection, group: str, accepted: Sequence[Settlement], longest_tier: Tier
) -> list[tuple[Settlement, Outcome]]:
    """Return the outcomes to write, after four steps that may replace an outcome, in this order.

    1. `count_repeated_ends`: from a task's fourth free end on, such an end is a counted failure.
    2. `loss_deaths.spare`: a suspect that may not die moves to the longest tier.
    3. `hold_back`: so does a death that a guard holds back.
    4. `_fit_to_batch`: a task that would wait in a cancelled batch is cancelled; a task to be
       cancelled, whose batch a replay has opened since, is given back.

    None of them replaces a success.
    """
    if all(isinstance(settlement.outcome, Succeeded) for settlement in accepted):
        return [(settlement, settlement.outcome) for settlement in accepted]
    counted = uncounted_ends.count_repeated_ends(connection, accepted, longest_tier)
    spared = loss_deaths.spare(connection, group, counted, longest_tier)
    decided = hold_back(connection, group, spared, longest_tier)
    ids = {each.row.batch_id for each, outcome in decided if isinstance(outcome, _BY_BATCH)}
    doomed = cancelled_among(connection, ids)
    return [
        (settlement, _fit_to_batch(outcome, cancelled=settlement.row.batch_id in doomed))
        for settlement, outcome in decided
    ]


def _accepted(connection: Connection, settlements: Sequence[Settlement]) -> list[Settlement]:
    """Lock the rows, and return the settlements whose claim still holds.

    Raises AssertionError if a claim holds with another fence, which no statement can cause. The
    caller, `SqlLedger._write`, takes any error for one of a row: the page is split down to this
    row, which is given up and logged, and the others are settled.
    """
    ids = {settlement.row.task_id for settlement in settlements}
    rows = {columns[0]: columns for columns in execute_by_ids(connection, _LOCK, ids)}
    accepted, late, dead = [], [], []
    for settlement in settlements:
        _, status, owner, fence = rows.get(settlement.row.task_id, _NO_ROW)
        if owner != settlement.owner or status not in SETTLES:
            if status == _DEAD and isinstance(settlement.outcome, Succeeded):
                dead.append(settlement)
            continue
        if fence != settlement.row.fence:
            raise AssertionError(
                f"task {settlement.row.task_id} is owned by {owner} with fence {fence}, "
                f"the claim had {settlement.row.fence}"
            )
        accepted.append(settlement)
        if status == _REAPED:
            late.append(settlement)
    if late:
        _take_back_losses(connection, late)
    if dead:
        _keep_late_answers(connection, dead)
    return accepted


def _take_back_losses(connection: Connection, late: Sequence[Settlement]) -> None:
    """Delete the lost attempts of claims that were reaped and end after all."""
    claims = sorted((settlement.row.task_id, settlement.owner) for settlement in late)
    values = [{"of_task": task_id, "of_owner": owner} for task_id, owner in claims]
    connection.execute(_UNLOSE, values)
    connection.execute(_FOUND, values)


def _count_cut_off(connection: Connection, accepted: Sequence[Settlement]) -> None:
    """Count the runs that were cut off, whatever becomes of their outcomes."""
    if cut_off := [each.row.task_id for each in accepted if _was_cut_off(each.outcome)]:
        execute_by_ids(connection, _CUT_OFF, cut_off)


def _was_cut_off(outcome: Outcome) -> bool:
    """Return whether a run had begun, and nobody saw its end."""
    if isinstance(outcome, Dead):
        failure = outcome.failure
        return failure.error_class == ErrorClass.WORKER_LOST and not failure.keeps_losses
    return isinstance(outcome, Released) and outcome.cut_off


def _keep_late_answers(connection: Connection, refused: Sequence[Settlement]) -> None:
    """Keep the answers of lost claims to tasks that are dead; a second try keeps no more."""
    ids, owners = zip(*((each.row.task_id, each.owner) for each in refused), strict=True)
    rows = connection.execute(_LATE, {"ids": ids, "owners": owners})
    lost = {(row.task_id, row.lost_owner) for row in rows}
    late = [each for each in refused if (each.row.task_id, each.owner) in lost]
    insert_rows(connection, reply, list(map(written_rows.late_answer, late)))


def _fit_to_batch(outcome: Outcome, *, cancelled: bool) -> Outcome:
    """Return the outcome that fits the state of the task's batch: cancelled or open."""
    if isinstance(outcome, _BY_BATCH):
        if cancelled:
            return Cancelled(outcome.spent)
        return Released(outcome.spent) if isinstance(outcome, Cancelled) else outcome
    return outcome


def _write_attempts(
    connection: Connection,
    chosen: Sequence[tuple[Settlement, Outcome]],
    now_utc_s: float,
    release: str,
) -> None:
    rows = [
        written_rows.attempt(settlement, outcome, now_utc_s, release)
        for settlement, outcome in chosen
        if (isinstance(outcome, Unsuccessful) and not written_rows.leaves_no_row(outcome))
        or (isinstance(outcome, UncountedEnd) and outcome.spent.has_called)
    ]
    insert_rows(connection, task_attempt, rows)
    insert_rows(connection, reply, list(written_rows.replies(chosen)))


def _write_orders(
    connection: Connection, group: str, chosen: Sequence[tuple[Settlement, Outcome]]
) -> list[Order]:
    items: dict[str, list[Item]] = {}
    for settlement, outcome in chosen:
        if isinstance(outcome, Dead):
            items.setdefault("dlq", []).append(
                Item(outbox.TASK, settlement.row.task_id, settlement.row.fence)
            )
        elif isinstance(outcome, Retry) and outcome.tier:
            items.setdefault(carrier(outcome), []).append(
                Item(outbox.TASK, settlement.row.task_id, settlement.row.fence + 1)
            )
    return [
        order
        for destination, of_destination in sorted(items.items())
        for order in outbox.place(connection, group, destination, of_destination)
    ]


# The verdict when the ledger replaced an outcome by one of this class.
_REPLACED: dict[str, Verdict] = {
    AttemptOutcome.MOVED: Verdict.HELD_BACK,
    AttemptOutcome.RELEASED: Verdict.REOPENED,
    AttemptOutcome.CANCELLED: Verdict.CANCELLED,
    AttemptOutcome.RETRY: Verdict.RETRIED,
    AttemptOutcome.DEAD: Verdict.DIED,
}


def _verdicts(
    connection: Connection,
    settlements: Sequence[Settlement],
    chosen: Sequence[tuple[Settlement, Outcome]],
) -> list[Verdict]:
    if len(chosen) == len(settlements):
        return [
            Verdict.SETTLED
            if outcome is settlement.outcome
            else _verdict(settlement.outcome, written_rows.ATTEMPT_OUTCOMES.get(type(outcome)))
            for settlement, (_, outcome) in zip(settlements, chosen, strict=True)
        ]
    written: dict[tuple[int, int], str | None] = {
        (settlement.owner, settlement.row.task_id): written_rows.ATTEMPT_OUTCOMES.get(type(outcome))
        for settlement, outcome in chosen
    }
    written = _echoes(connection, settlements) | written
    return [
        _verdict(settlement.outcome, written[settlement.owner, settlement.row.task_id])
        if (settlement.owner, settlement.row.task_id) in written
        else Verdict.SUPERSEDED
        for settlement in settlements
    ]


def _verdict(outcome: Outcome, written: str | None) -> Verdict:
    """Return the verdict about an outcome that was written as `written`; None is a success."""
    if written is None or written == written_rows.ATTEMPT_OUTCOMES.get(type(outcome)):
        return Verdict.SETTLED
    return _REPLACED[written]


def _echoes(
    connection: Connection, settlements: Sequence[Settlement]
) -> dict[tuple[int, int], str | None]:
    """Return what an earlier try had committed, by (owner, task); None is a success.

    The result or attempt row carries the owner.
    """
    ids = sorted({settlement.row.task_id for settlement in settlements})
    echoes: dict[tuple[int, int], str | None] = {}
    for table, written in ((task_result, null()), (task_attempt, task_attempt.c.outcome)):
        rows = connection.execute(
            select(table.c.owner, table.c.task_id, written).where(table.c.task_id.in_(ids))
        )
        echoes |= {(owner, task_id): outcome for owner, task_id, outcome in rows}
    return echoes
