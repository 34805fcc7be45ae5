"""Which batches may be purged; deletes what is kept of them, as SQL, page by page.

A batch is marked before its first row goes. Agents answer `done` for a record whose row is gone if
its batch is archived, and would quarantine it otherwise. Counts (`tally` and its roll-ups) stay,
so that no counter falls. A page deletes final tasks only, under their locks: a task that runs
again meanwhile keeps all that it has.
"""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, delete, func, select, update

from docllm.producer.ledger import audit, outbox, tally
from docllm.producer.ledger.audit import AuditKind
from docllm.producer.ledger.batch_ids import id_range
from docllm.producer.ledger.retention import archive_rows
from docllm.producer.ledger.retention.archive_rows import last_change
from docllm.producer.ledger.store import require_batch
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
from docllm.schemas.task.record.topics import RESULTS
from docllm.schemas.task.states import FINAL, Status
from docllm.schemas.text.wording import number_of

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Purgeable:
    """A batch as a purge sees it. Times are UTC without a zone.

    `counts` are its final tasks by state. `changed_at` is when a task last changed its state, or
    when the batch was made, if that is later. `verified_at` is when its newest archive was found
    whole, at `archived_to`, and `archive_digest` is the SHA-256 of its manifest; `is_archived` says
    whether no task has changed since that archive began. `is_purging` says whether a purge of it
    has begun: then it cannot be archived again.
    """

    id: int
    name: str
    group: str
    counts: dict[Status, int]
    changed_at: datetime
    verified_at: datetime | None
    archived_to: str
    archive_digest: bytes | None
    is_archived: bool
    is_purging: bool
    purged_at: datetime | None

    @property
    def options(self) -> str:
        """The options that name the batch in a command for a person."""
        return f"--batch {shlex.quote(self.name)} --group {self.group}"

    @property
    def tasks(self) -> int:
        """How many final tasks the batch has had."""
        return sum(self.counts.values())


def find(connection: Connection, group: str, name: str) -> Purgeable | None:
    """Return the batch of this name, None if the group has none."""
    return next(_read(connection, group, batch.c.name == name), None)


def unchanged_since(connection: Connection, group: str, before: datetime) -> list[Purgeable]:
    """Return the batches that are not purged and have not changed since `before`, oldest first."""
    candidates = _read(
        connection,
        group,
        batch.c.purged_at.is_(None),
        batch.c.created_at < before,
    )
    return [target for target in candidates if target.changed_at < before]


def refusal(connection: Connection, target: Purgeable, *, unarchived: bool) -> str:
    """Return why the batch may not be purged now, and what to do; empty if it may be."""
    named = target.group, target.name
    current = find(connection, *named)
    if current is None or current.id != target.id:
        return "it no longer exists"
    if reason := archive_rows.refusal(connection, require_batch(connection, *named)):
        return reason
    if unsent := _unsent(connection, target):
        return (
            f"records of {number_of(unsent, 'ended task')} of it are not on their topics yet; "
            "agents send them within a minute"
        )
    if current.is_archived or unarchived:
        return ""
    since = " since it changed" if current.verified_at else ""
    return (
        f"it was not archived{since}; run: docllm archive {target.options} "
        "--to DIR, or name it with --unarchived to lose what is deleted"
    )


def _read(
    connection: Connection, group: str, *conditions: ColumnElement[bool]
) -> Iterator[Purgeable]:
    query = select(batch).where(batch.c.group_name == group, *conditions).order_by(batch.c.id)
    for row in connection.execute(query).all():
        last = last_change(connection, row.id)
        newest = archive_rows.newest(connection, [row.id]).get(row.id)
        yield Purgeable(
            id=row.id,
            name=row.name,
            group=row.group_name,
            counts=_final_counts(connection, row.id),
            changed_at=max(last, row.created_at),
            verified_at=None if newest is None else newest.verified_at,
            archived_to="" if newest is None else newest.uri,
            archive_digest=None if newest is None else newest.digest,
            is_archived=newest is not None and newest.created_at >= last,
            is_purging=row.purging_at is not None,
            purged_at=row.purged_at,
        )


def _final_counts(connection: Connection, batch_id: int) -> dict[Status, int]:
    batch_counts = tally.counts(
        lambda column: [column["batch_id"] == batch_id, column["state"].in_(FINAL)]
    ).c
    sums = select(batch_counts.state, func.sum(batch_counts.delta)).group_by(batch_counts.state)
    return {Status(state): int(count) for state, count in connection.execute(sums) if count}


def _unsent(connection: Connection, target: Purgeable) -> int:
    """Return of how many tasks the dead letter, or the result's line, is ordered and not sent."""
    first_id, last_id = id_range(connection, target.id)
    ordered = outbox.ordered(connection, target.group, "dlq", RESULTS)
    near = sorted(task_id for task_id in ordered if first_id <= task_id <= last_id)
    own = select(func.count()).where(task.c.id.in_(near), task.c.batch_id == target.id)
    return connection.execute(own).scalar_one() if near else 0


def begin_purge(connection: Connection, target: Purgeable, actor: str, *, unarchived: bool) -> None:
    """Mark the batch, so that its rows may go; record it in the audit.

    It may be marked again. Raises UnsafeStateError, with the reason, if it may not be purged.
    """
    lock = select(batch.c.id).where(batch.c.id == target.id).with_for_update()
    connection.execute(lock)
    if reason := refusal(connection, target, unarchived=unarchived):
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
) -> tuple[int, int]:
    """Delete at most `limit` tasks from the first of the two ids on, but none that runs again.

    Return where the next page begins, and how many tasks were deleted. The page follows the primary
    key, whatever batches the tasks are of.
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
        return next_id, 0
    lock = select(task.c.id, task.c.status, task.c.digest).where(task.c.id.in_(own))
    locked = connection.execute(lock.order_by(task.c.id).with_for_update()).all()
    final = [row for row in locked if row.status in FINAL]
    _delete(connection, target.group, final)
    return next_id, len(final)


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
