"""What the reaper finds and resets, as SQL. It takes no task from a live lease: every reset checks its reason again under lock."""

import logging
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from agent.judge import fingerprint
from agent.lease import OWNER_BITS
from agent.ledger import guard_decisions as guards
from agent.ledger import losses, queries
from agent.ledger.leases import REMEMBER_S
from agent.ports import SUSPECT_LOSSES
from producer.ledger import outbox
from producer.ledger import tally as counts
from schemas.ledger.sql import NEVER_TIME, utc_after, utc_now
from schemas.ledger.tables import agent, batch, dead_letter, tally, task, task_attempt
from schemas.task.states import Status

log = logging.getLogger(__name__)

PAGE = 500
LOSS_LIMIT = (
    3  # of a task whose claims run out in living agents; in lost ones it must have been alone
)
NAMED_MOST = 10
WORKER_LOST = "WORKER_LOST"
# More deaths than this in a window are not poison tasks but a bad release: nothing more is given up for it.
LOST_PER_WINDOW, WINDOW_S = 10, 600.0
FEW_DEATHS = 3

_GONE = exists().where(
    agent.c.id == task.c.owner.op(">>")(OWNER_BITS),
    or_(agent.c.lost_at > utc_after(-REMEMBER_S), agent.c.stopped_at > utc_after(-REMEMBER_S)),
)
_LATE = task.c.due_at < utc_now()
_ORPHANS = (
    select(task.c.id)
    .join(agent, agent.c.id == task.c.owner.op(">>")(OWNER_BITS))
    .where(task.c.status == int(Status.PROCESSING), agent.c.group_name == bindparam("of_group"))
    .where(
        or_(agent.c.lost_at > utc_after(-REMEMBER_S), agent.c.stopped_at > utc_after(-REMEMBER_S))
    )
    .limit(PAGE)
)
_OVERDUE = queries.along_due(
    select(task.c.id)
    .where(task.c.status == int(Status.PROCESSING), _LATE, queries.in_group(bindparam("of_group")))
    .order_by(task.c.due_at)
    .limit(PAGE)
)


def orphans(connection: Connection, group: str) -> list[int]:
    """Return tasks in the claims of agents that were lost or stopped in the last day."""
    return list(connection.execute(_ORPHANS, {"of_group": group}).scalars())


def overdue(connection: Connection, group: str) -> list[int]:
    """Return tasks whose claim is past its hard deadline, whoever holds it."""
    return list(connection.execute(_OVERDUE, {"of_group": group}).scalars())


def reset_orphans(connection: Connection, group: str, ids: Sequence[int]) -> tuple[int, int]:
    """Reset tasks of agents that are gone; return how many wait again, and how many died of it."""
    rows = _locked(connection, ids, _GONE)
    guilty = losses.guilty(connection, rows)
    going = _going(connection, rows)
    found = _reset(connection, group, going, [row for row in guilty if row in going])
    losses.charge(connection, going)
    return found


def reset_overdue(connection: Connection, group: str, ids: Sequence[int]) -> tuple[int, int]:
    """Reset tasks that are past their hard deadline; return how many wait again, and how many died of it."""
    going = _going(connection, _locked(connection, ids, _LATE))
    return _reset(
        connection, group, going, [row for row in going if row.lease_losses + 1 >= LOSS_LIMIT]
    )


def absolve(connection: Connection, group: str) -> int:
    """Take back losses of tasks that were beside one that is dead of it; return how many, a page at most.

    None while many are found: then it is the release, and each of the others shall prove itself one at a time.
    """
    if _deaths_left(connection, group) < LOST_PER_WINDOW - FEW_DEATHS:
        return 0
    return losses.undo(connection, group)


def _locked(
    connection: Connection, ids: Sequence[int], reason: ColumnElement[bool]
) -> Sequence[Any]:
    columns = (
        task.c.id,
        task.c.batch_id,
        task.c.type,
        task.c.owner,
        task.c.fence,
        task.c.attempt,
        task.c.lease_losses,
    )
    query = (
        select(*columns)
        .where(task.c.id.in_(sorted(ids)), task.c.status == int(Status.PROCESSING), reason)
        .order_by(task.c.id)
    )
    return connection.execute(query.with_for_update(skip_locked=True)).all()


def _going(connection: Connection, rows: Sequence[Any]) -> list[Any]:
    """End those whose batch is cancelled; return the others."""
    doomed = _cancelled(connection, rows) if rows else set()
    _end(connection, [row for row in rows if row.batch_id in doomed])
    return [row for row in rows if row.batch_id not in doomed]


def _reset(
    connection: Connection, group: str, rows: Sequence[Any], guilty: Sequence[Any]
) -> tuple[int, int]:
    dead = _to_kill(connection, group, guilty)
    back = [row for row in rows if row not in dead]
    _kill(connection, group, dead)
    _return(connection, group, back)
    guards.leave_looks(connection, [(row.id, row.fence) for row in back])
    _name(connection, back, dead)
    return len(back), len(dead)


def _name(connection: Connection, back: Sequence[Any], dead: Sequence[Any]) -> None:
    """Say in the log which tasks are suspects now, and which are dead of it."""
    suspects = [row for row in back if row.lease_losses + 1 >= SUSPECT_LOSSES]
    told = [(row, "is dead of it") for row in dead] + [(row, "is a suspect") for row in suspects]
    query = select(batch.c.id, batch.c.name).where(
        batch.c.id.in_(sorted({row.batch_id for row, _ in told[:NAMED_MOST]}))
    )
    names = {row.id: row.name for row in connection.execute(query)} if told else {}
    for row, what in told[:NAMED_MOST]:
        log.warning(
            "task %d of batch %s %s: %d agents were lost over it",
            row.id,
            names[row.batch_id],
            what,
            row.lease_losses + 1,
        )
    if len(told) > NAMED_MOST:
        log.warning("and %d more tasks are suspects or dead of it", len(told) - NAMED_MOST)


def _cancelled(connection: Connection, rows: Sequence[Any]) -> set[int]:
    ids = sorted({row.batch_id for row in rows})
    return set(
        connection.execute(
            select(batch.c.id).where(batch.c.id.in_(ids), batch.c.cancelled_at.is_not(None))
        ).scalars()
    )


def _to_kill(connection: Connection, group: str, lost: Sequence[Any]) -> Sequence[Any]:
    """Return those that are given up on. When that would be too many their guard is raised; then only tasks of its looks die."""
    if not lost:
        return []
    stopped = guards.stopped(connection, {(row.batch_id, row.type) for row in lost})
    tried = (
        guards.in_lost_looks(connection, group, [(row.id, row.fence) for row in lost])
        if stopped
        else set()
    )
    free = [row for row in lost if (row.batch_id, row.type) not in stopped or row.id in tried]
    left = _deaths_left(connection, group)
    if spared := {(row.batch_id, row.type) for row in free[left:]}:
        guards.raise_for_losses(
            connection,
            group,
            spared,
            f"more than {LOST_PER_WINDOW} tasks lost {LOSS_LIMIT} agents each in 10 minutes",
        )
    return free[:left]


def _deaths_left(connection: Connection, group: str) -> int:
    """Return how many tasks may still be given up in this window; the others wait again."""
    query = (
        select(func.coalesce(func.sum(tally.c.delta), 0))
        .join(batch, batch.c.id == tally.c.batch_id)
        .where(
            batch.c.group_name == group,
            tally.c.outcome == WORKER_LOST,
            tally.c.created_at > utc_after(-WINDOW_S),
        )
        .where(tally.c.delta > 0)  # a replay takes none of them back
    )
    return max(0, LOST_PER_WINDOW - int(connection.execute(query).scalar_one()))


def _return(connection: Connection, group: str, rows: Sequence[Any]) -> None:
    """The owner stays, so that a late settle may come. Kafka redelivers the record, so the order waits for its grace."""
    ids = [row.id for row in rows]
    if ids:
        losses = task.c.lease_losses + 1
        connection.execute(
            update(task)
            .where(task.c.id.in_(ids))
            .values(status=int(Status.PENDING), due_at=utc_now(), lease_losses=losses)
        )
        outbox.place(connection, group, "tasks", [(outbox.TASK, row.id, row.fence) for row in rows])


def _end(connection: Connection, rows: Sequence[Any]) -> None:
    ids = [row.id for row in rows]
    if ids:
        connection.execute(
            update(task)
            .where(task.c.id.in_(ids))
            .values(status=int(Status.CANCELLED), owner=0, due_at=NEVER_TIME)
        )
        counts.write(
            connection,
            [
                counts.TallyChange(
                    counts.TallyKey(row.batch_id, row.type, "", Status.CANCELLED, "cancelled")
                )
                for row in rows
            ],
        )


def _kill(connection: Connection, group: str, rows: Sequence[Any]) -> None:
    ids = [row.id for row in rows]
    if not ids:
        return
    connection.execute(
        update(task)
        .where(task.c.id.in_(ids))
        .values(
            status=int(Status.DEAD),
            owner=0,
            due_at=NEVER_TIME,
            lease_losses=task.c.lease_losses + 1,
            attempt=task.c.attempt + 1,
        )
    )
    connection.execute(insert(dead_letter), [_letter(row) for row in rows])
    connection.execute(insert(task_attempt), [_attempt(row) for row in rows])
    outbox.place(
        connection, group, "dlq", [(outbox.TASK, row.id, row.fence) for row in rows], grace_s=0.0
    )  # the relay alone sends it
    stamp = fingerprint(WORKER_LOST, "")
    counts.write(
        connection,
        [
            counts.TallyChange(
                counts.TallyKey(
                    row.batch_id, row.type, "", Status.DEAD, WORKER_LOST, stamp, "worker_lost"
                )
            )
            for row in rows
        ],
    )


def _letter(row: Any) -> dict[str, Any]:
    return {
        "task_id": row.id,
        "fence": row.fence,
        "disposition": "worker_lost",
        "error_class": WORKER_LOST,
        "fingerprint": fingerprint(WORKER_LOST, ""),
        "error_text": _epitaph(row),
    }


def _attempt(row: Any) -> dict[str, Any]:
    return {
        "task_id": row.id,
        "owner": 0,  # not the lost agent's: its own late settle must not take this for an echo
        "attempt": row.attempt,
        "fence": row.fence,
        "outcome": "dead",
        "error_class": WORKER_LOST,
        "error_text": _epitaph(row),
    }


def _epitaph(row: Any) -> str:
    return f"{row.lease_losses + 1} agents were lost while they worked on it"
