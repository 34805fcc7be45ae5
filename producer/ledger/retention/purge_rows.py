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
from docllm.producer.ledger.retention.purge_rules import Keep, Purgeable
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.ledger.tables import (
    batch,
    dead_letter,
    dead_line,
    follow_up,
    guard_look,
    hook,
    result_note,
    task,
    task_attempt,
    task_input,
    task_loss,
    task_result,
)
from docllm.schemas.task.result.answer import has_schema
from docllm.schemas.task.result.codec import EXPIRED, WITH_JSON
from docllm.schemas.task.states import FINAL, Status

MAX_READ = 20  # inputs that are in memory at once
# In the order in which transactions lock them; the rows of `task` itself are locked before.
_OF_TASK: tuple[Column[Any], ...] = (
    task_result.c.task_id,
    result_note.c.task_id,
    task_attempt.c.task_id,
    dead_letter.c.task_id,
    task_input.c.task_id,
    follow_up.c.parent_id,
    guard_look.c.task_id,
    task_loss.c.task_id,
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


def begin_purge(
    connection: Connection, target: Purgeable, keep: Keep, actor: str, *, unarchived: bool
) -> None:
    """Mark the batch, so that its rows may go; record it in the audit.

    It may be marked again. Raises UnsafeStateError, with the reasons, if it may not be purged.
    """
    lock = select(batch.c.id).where(batch.c.id == target.id).with_for_update()
    connection.execute(lock)
    if reasons := purge_rules.refusals(connection, target, keep, unarchived=unarchived):
        raise UnsafeStateError(f"batch {target.name}: {reasons[0]}")
    batch_update = update(batch).where(batch.c.id == target.id)
    if keep.ends_replays:
        purging = func.coalesce(batch.c.purging_at, utc_now())
        connection.execute(batch_update.values(purging_at=purging))
    if keep is Keep.NOTHING:
        archived = func.coalesce(batch.c.archived_at, utc_now())
        connection.execute(batch_update.values(archived_at=archived))
    audit.write(
        connection,
        group=target.group,
        actor=actor,
        action=audit.PURGE,
        kind=AuditKind.BATCH,
        target=target.name,
        detail=f"batch {target.name}: kept {keep}; archive: {target.archived_to or 'none'}",
        items=target.tasks,
    )


def purge_page(
    connection: Connection, target: Purgeable, keep: Keep, ids: tuple[int, int], limit: int
) -> PurgedPage:
    """Delete what is to go of at most `limit` tasks from the first of the two ids on.

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
    if keep is Keep.NOTHING:
        _delete(connection, target.group, final)
    else:
        spared = {Status.DEAD} if keep is not Keep.ROWS else set()
        expire(
            connection,
            [row.id for row in final if row.status not in spared],
            results=keep is not Keep.RESULTS,
        )
    return PurgedPage(next_id, len(final), len(locked) - len(final))


def expire(connection: Connection, ids: Sequence[int], *, results: bool) -> None:
    """Delete the inputs of final tasks; with `results`, their notes and results' bodies too.

    Their rows stay, with times, tokens and cost. The caller has locked the tasks.
    """
    if not ids:
        return
    if results:
        emptied = update(task_result).where(task_result.c.task_id.in_(ids))
        connection.execute(emptied.values(codec=EXPIRED, body=b""))
        connection.execute(delete(result_note).where(result_note.c.task_id.in_(ids)))
    else:
        _keep_forms(connection, ids)
    connection.execute(delete(task_input).where(task_input.c.task_id.in_(ids)))


def finish(connection: Connection, target: Purgeable, keep: Keep) -> bool:
    """Note what is gone; return False if rows of the batch are left that should be gone."""
    gone: dict[str, Any] = {"inputs_purged_at": utc_now()}
    if keep is not Keep.RESULTS:
        gone["results_purged_at"] = utc_now()
    if keep is Keep.NOTHING:
        left = select(task.c.id).where(task.c.batch_id == target.id).limit(1)
        if connection.execute(left).scalar() is not None:
            return False
        gone["purged_at"] = utc_now()
    connection.execute(update(batch).where(batch.c.id == target.id).values(gone))
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


def _keep_forms(connection: Connection, ids: Sequence[int]) -> None:
    """Note with each result that it is JSON, where only the task's line says so."""
    body = task_input.c.body
    may_have = select(task_input.c.task_id).where(
        task_input.c.task_id.in_(ids), func.instr(body, b'"schema"') > 0
    )
    candidates = sorted(connection.execute(may_have).scalars())
    for start in range(0, len(candidates), MAX_READ):
        page = candidates[start : start + MAX_READ]
        query = select(task_input.c.task_id, body).where(task_input.c.task_id.in_(page))
        with_schema = [row.task_id for row in connection.execute(query) if has_schema(row.body)]
        for codec, with_json in WITH_JSON.items() if with_schema else ():
            of_codec = update(task_result).where(
                task_result.c.task_id.in_(with_schema), task_result.c.codec == codec
            )
            connection.execute(of_codec.values(codec=with_json))
