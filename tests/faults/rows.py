"""The ledger as the database records it: attempts, and histories of its rows.

The histories are of tasks, orders and leases.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import select, text

from docllm.producer.ledger import outbox
from docllm.producer.ledger.replay_progress import ItemState
from docllm.schemas.ledger.tables import batch, replay_item, replay_run, task, task_attempt
from docllm.schemas.task.states import Status
from tests.faults import history
from tests.faults.history import seconds
from tests.integration.support.ledgers import spelled
from tests.invariants import counted
from tests.invariants.counted import Sums
from tests.invariants.evidence import Attempt
from tests.invariants.happened import Count, DeclaredLost, Guarded, Move, Ordered, Replayed

NEVER_YEAR = 9999
# A guard's row is written before its cause, in the same transaction, at most this much earlier.
COMMIT_S = 1.0


def attempts(url: str, moves: Sequence[Move]) -> list[Attempt]:
    """Return the attempts that did not succeed.

    They ended with their claims, by the database's clock, because an agent's clock may be wrong.
    """
    ended_s = {(move.task_id, move.old_owner): move.at_s for move in moves if move.ends}
    columns = (task_attempt, task.c.task_key, batch.c.name)
    query = (
        select(*columns)
        .join(task, task.c.id == task_attempt.c.task_id)
        .join(batch, batch.c.id == task.c.batch_id)
    )
    return [
        Attempt(
            task=spelled(row.name, row.task_key),
            number=row.attempt,
            outcome=row.outcome,
            error_class=row.error_class,
            settled_s=ended_s.get((row.task_id, row.owner), seconds(row.started_at)),
            owner=row.owner,
        )
        for row in history.rows(url, query)
    ]


def moves(url: str) -> list[Move]:
    """Return every change of a task."""
    return [
        Move(
            order=(at_s := seconds(row.at)),
            at_s=at_s,
            clock_s=at_s,
            task_id=row.task_id,
            before=None if row.old_status is None else Status(row.old_status),
            after=Status(row.status),
            old_owner=row.old_owner,
            owner=row.owner,
            old_fence=row.old_fence,
            fence=row.fence,
            old_due_s=seconds(row.old_due) if row.old_due.year < NEVER_YEAR else float("inf"),
            losses=row.losses,
            attempts=row.attempts,
            replays=row.replays,
        )
        for row in history.read(url, "fault_move")
    ]


def counts(url: str) -> list[Count]:
    """Return every change of the counts, with its time."""
    return [
        Count(
            at_s := seconds(row.at),
            at_s,
            row.batch_id,
            row.type,
            row.route,
            Status(row.state),
            row.disposition,
            row.delta,
            row.outcome,
        )
        for row in history.read(url, "fault_count")
    ]


def sums(url: str) -> list[Sums]:
    """Return what all counts add up to, and what of them the ledger keeps."""
    return counted.sums(lambda sql: list(history.rows(url, text(sql))), "fault_count")


def guards(url: str) -> list[Guarded]:
    """Return from when to when each guard was raised."""
    looked = [(row.guard_id, seconds(row.at)) for row in history.read(url, "fault_look")]
    guards: list[tuple[int, Guarded]] = []
    raised: dict[int, Guarded] = {}
    for row in history.read(url, "fault_guard"):
        at_s = seconds(row.at)
        if row.raised:
            raised[row.guard_id] = Guarded(row.batch_id, row.type, row.route, at_s, None, row.cause)
        elif row.guard_id in raised:
            guards.append((row.guard_id, replace(raised.pop(row.guard_id), opened=at_s)))
    whole = [*guards, *raised.items()]
    return [
        replace(guard, raised=guard.raised + COMMIT_S, tried=_between(guard, guard_id, looked))
        for guard_id, guard in whole
    ]


def _between(guard: Guarded, guard_id: int, looked: Sequence[tuple[int, float]]) -> list[float]:
    """Return when tasks went in the guard's looks while it was raised."""
    return [
        at_s
        for other, at_s in looked
        if other == guard_id
        and guard.raised <= at_s
        and (guard.opened is None or at_s <= guard.opened)
    ]


def replayed(url: str) -> list[Replayed]:
    """Return the tasks of replays that began."""
    query = (
        select(replay_item)
        .join(replay_run, replay_run.c.id == replay_item.c.run_id)
        .where(replay_run.c.stored_at.is_not(None))
    )
    rows = history.rows(url, query.where(replay_item.c.kind == outbox.TASK))
    return [
        Replayed(
            row.run_id,
            row.item_id,
            row.fence,
            applied=row.state == ItemState.REPLAYED,
            waits=row.state == ItemState.WAITS,
        )
        for row in rows
    ]


def declared_lost(url: str) -> list[DeclaredLost]:
    """Return every declaration that an agent is lost."""
    rows = history.read(url, "fault_verdict")
    return [
        DeclaredLost(at_s := seconds(row.at), at_s, row.agent_id, at_s - seconds(row.seen_at))
        for row in rows
    ]


def ordered(url: str) -> list[Ordered]:
    """Return the interval in which each task's record was in the outbox."""
    intervals: list[Ordered] = []
    placed_s: dict[int, dict[tuple[int, int], float]] = defaultdict(dict)
    for row in history.read(url, "fault_order"):
        at_s = seconds(row.at)
        if row.destination == "dlq":
            continue
        items = {
            (key, fence) for kind, key, fence in outbox.unpack(row.items) if kind == outbox.TASK
        }
        before = placed_s[row.order_id]
        intervals += [
            Ordered(*item, placed=before.pop(item), gone=at_s) for item in before.keys() - items
        ]
        placed_s[row.order_id] = dict.fromkeys(items, at_s) | before
    return intervals + [
        Ordered(*item, placed=placed, gone=None)
        for items in placed_s.values()
        for item, placed in items.items()
    ]
