"""Deletes what is kept of batches whose tasks are all final, as SQL, page by page.

A batch is marked before its first row goes. Agents answer `done` for a record whose row is gone if
its batch is archived, and would quarantine it otherwise. Counts (`tally` and its roll-ups) stay,
so that no counter falls. A page deletes final tasks only, under their locks: a task that runs
again meanwhile keeps all that it has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, delete, func, select, update

from docllm.producer.ledger import audit
from docllm.producer.ledger.audit import AuditKind
from docllm.producer.ledger.retention import purge_rules
from docllm.producer.ledger.retention.purge_rules import Purgeable
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.ledger.tables import (
    batch,
    dead_letter,
    dead_line,
    follow_up,
    guard_look,
    hook,
    reply,
    result_note,
    task,
    task_attempt,
    task_change,
    task_input,
    task_loss,
    task_result,
    task_state,
    waiting,
)
from docllm.schemas.task.states import FINAL

# In the order in which transactions lock them; the rows of `task` itself are locked before.
_OF_TASK: tuple[Column[Any], ...] = (
    task_result.c.task_id,
    result_note.c.task_id,
    task_attempt.c.task_id,
    reply.c.task_id,
    dead_letter.c.task_id,
    task_input.c.task_id,
    task_change.c.task_id,
    follow_up.c.parent_id,
    guard_look.c.task_id,
    task_loss.c.task_id,
    waiting.c.task_id,
    task_state.c.task_id,
    hook.c.task_id,
)


@dataclass(frozen=True, slots=True)
class PurgedPage:
    """The result of one transaction: how many tasks it purged, and how many run again.

    The next page begins at `next_id`.
    """

    next_id: int
    purged: int
    left: int


def begin_purge(connection: Connection, target: Purgeable, actor: str, *, unarchived: bool) -> None:
    """Mark the batch, so that its rows may go; record it in the audit.

    It may be marked again. Raises UnsafeStateError, with the reason, if it may not be purged.
    """
    lock = select(batch.c.id).where(batch.c.id == target.id).with_for_update()
    connection.execute(lock)
    if reason := purge_rules.refusal(connection, target, unarchived=unarchived):
        raise UnsafeStateError(f"batch {target.name}: {reason}")
    marks = {
        mark: func.coalesce(batch.c[mark], utc_now()) for mark in ("purging_at", "archived_at")
    }
    connection.execute(update(batch).where(batch.c.id == target.id).values(marks))
    audit.write(
        connection,
        group=target.group,
        actor=actor,
        action="purge",
        kind=AuditKind.BATCH,
        target=target.name,
        detail=f"batch {target.name}; archive: {target.archived_to or 'none'}",
        items=target.tasks,
    )


def purge_page(
    connection: Connection, target: Purgeable, ids: tuple[int, int], limit: int
) -> PurgedPage:
    """Delete at most `limit` tasks from the first of the two ids on.

    The page follows the primary key, whatever batches the tasks are of.
    """
    first_id, last_id = ids
    page = (
        select(task.c.id, task.c.batch_id)
        .where(task.c.id.between(first_id, last_id))
        .order_by(task.c.id)
        .limit(limit)
    )
    rows = connection.execute(page).all()
    next_id = rows[-1].id + 1 if rows else last_id + 1
    own = [row.id for row in rows if row.batch_id == target.id]
    if not own:
        return PurgedPage(next_id, 0, 0)
    lock = select(task.c.id, task.c.status, task.c.digest).where(task.c.id.in_(own))
    locked = connection.execute(lock.order_by(task.c.id).with_for_update()).all()
    final = [row for row in locked if row.status in FINAL]
    _delete(connection, target.group, final)
    return PurgedPage(next_id, len(final), len(locked) - len(final))


def finish(connection: Connection, target: Purgeable) -> bool:
    """Note that all is gone; return False if rows of the batch are left."""
    left = select(task.c.id).where(task.c.batch_id == target.id).limit(1)
    if connection.execute(left).scalar() is not None:
        return False
    connection.execute(update(batch).where(batch.c.id == target.id).values(purged_at=utc_now()))
    return True


def _delete(connection: Connection, group: str, rows: Sequence[Any]) -> None:
    """Delete tasks and all that belongs to them."""
    ids = [row.id for row in rows]
    if not ids:
        return
    for column in _OF_TASK:
        connection.execute(delete(column.table).where(column.in_(ids)))
    lines = delete(dead_line).where(
        dead_line.c.group_name == group,
        dead_line.c.digest.in_([row.digest for row in rows]),
        dead_line.c.task_id.in_(ids),
    )
    connection.execute(lines)
    connection.execute(delete(task).where(task.c.id.in_(ids)))
