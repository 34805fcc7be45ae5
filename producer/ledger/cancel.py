"""Cancels a batch or a task.

Waiting tasks become `cancelled`, running tasks finish, and tasks that would wait again become
`cancelled` instead. The batch is marked first, so a later retry, release or reap ends its task;
then the waiting rows follow in blocks. `Canceller` continues an interrupted cancel.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, select, update

from docllm.producer.ledger import audit, guards, hook_orders, joins, tally, waiting_rows
from docllm.producer.ledger.audit import AuditKind
from docllm.producer.ledger.store import Batch
from docllm.schemas.ledger.query_plans import along_open
from docllm.schemas.ledger.sql import NEVER_TIME, utc_now
from docllm.schemas.ledger.tables import batch, task
from docllm.schemas.task.joins import JoinRole
from docllm.schemas.task.states import WAITING, Status

PAGE = 500


def cancel_batch(connection: Connection, target: Batch, actor: str) -> bool:
    """Mark the batch as cancelled, open its guards and record it in the audit.

    Return False if it was cancelled already.
    """
    mark_cancelled = (
        update(batch)
        .where(batch.c.id == target.id, batch.c.cancelled_at.is_(None))
        .values(cancelled_at=utc_now())
    )
    if connection.execute(mark_cancelled).rowcount == 0:
        return False
    audit.write(
        connection,
        group=target.group,
        actor=actor,
        action="cancel",
        kind=AuditKind.BATCH,
        target=target.name,
        detail=f"batch {target.name}",
    )
    guards.open_all(connection, target.group, target.id, actor, "the batch was cancelled")
    return True


class CancelledPage(NamedTuple):
    """How many tasks of a page were cancelled, and whether more may wait."""

    cancelled: int
    more_wait: bool


def cancel_page(connection: Connection, batch_id: int) -> CancelledPage:
    """Cancel a page of a batch's waiting tasks.

    It reads waiting tasks only, so it costs nothing where none waits. A batch that a replay has
    reopened meanwhile is left alone.
    """
    cancelled_at = (
        select(batch.c.cancelled_at).where(batch.c.id == batch_id).with_for_update(read=True)
    )
    if connection.execute(cancelled_at).scalar() is None:
        return CancelledPage(0, more_wait=False)
    waiting = select(task.c.id).where(task.c.batch_id == batch_id, task.c.status.in_(WAITING))
    ids = connection.execute(along_open(waiting).limit(PAGE)).scalars().all()
    return CancelledPage(cancel_waiting(connection, ids), len(ids) == PAGE)


def cancel_one(
    connection: Connection, key: bytes, group: str, batch_id: int | None, actor: str
) -> list[tuple[str, Status]]:
    """Cancel the group's task with this key if it waits.

    Returns (batch name, state before) of each task with that key. If several batches have such a
    task, nothing is cancelled: a person must say which task is meant.
    """
    tasks = (
        select(task.c.id)
        .join(batch, batch.c.id == task.c.batch_id)
        .where(batch.c.group_name == group, task.c.task_key == key)
    )
    if batch_id is not None:
        tasks = tasks.where(batch.c.id == batch_id)
    ids = sorted(connection.execute(tasks).scalars())
    tasks_to_lock = (
        select(task.c.id, task.c.batch_id, task.c.status, task.c.join_role)
        .where(task.c.id.in_(ids))
        .order_by(task.c.id)
    )
    rows = connection.execute(tasks_to_lock.with_for_update()).all()
    if len(rows) == 1 and rows[0].status in WAITING:
        cancel_waiting(connection, ids)
        if rows[0].join_role == JoinRole.SIBLING:
            joins.after_end(connection, group, ids)
        audit.write(
            connection,
            group=group,
            actor=actor,
            action="cancel",
            kind=AuditKind.TASK,
            target=str(rows[0].id),
            detail=f"task {rows[0].id}",
            items=1,
        )
    query = select(batch.c.id, batch.c.name).where(batch.c.id.in_([row.batch_id for row in rows]))
    names = {row.id: row.name for row in connection.execute(query)}
    return [(names[row.batch_id], Status(row.status)) for row in rows]


def cancel_waiting(connection: Connection, ids: Collection[int]) -> int:
    """Cancel those of these tasks that still wait; return how many."""
    if not ids:
        return 0
    # An agent may have claimed some of these tasks since they were read: only tasks that still wait
    # are moved and counted.
    locked = (
        select(
            task.c.id,
            task.c.batch_id,
            task.c.type,
            task.c.route,
            task.c.tenant,
            task.c.attempt,
        )
        .where(task.c.id.in_(sorted(ids)), task.c.status.in_(WAITING))
        .order_by(task.c.id)
        .with_for_update()
    )
    waiting = connection.execute(locked).all()
    waiting_rows.forget(connection, [row.id for row in waiting])
    cancel_locked(connection, waiting)
    return len(waiting)


def cancel_locked(connection: Connection, rows: Sequence[Any]) -> None:
    """Make locked tasks cancelled, whatever they did before.

    The rows have `id`, `batch_id`, `type`, `route`, `tenant` and `attempt`.
    """
    ids = [row.id for row in rows]
    if ids:
        end = update(task).where(task.c.id.in_(ids))
        connection.execute(end.values(status=int(Status.CANCELLED), owner=0, due_at=NEVER_TIME))
        waiting_rows.forget_states(connection, ids)
        hook_orders.order_cancelled(connection, rows)
        tally.write(connection, map(tally.cancelled, rows))


def cancelled_among(connection: Connection, batch_ids: Collection[int]) -> set[int]:
    """Return which of these batches are cancelled."""
    if not batch_ids:
        return set()
    query = select(batch.c.id).where(batch.c.id.in_(sorted(batch_ids)))
    return set(connection.execute(query.where(batch.c.cancelled_at.is_not(None))).scalars())
