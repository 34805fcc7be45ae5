"""Replays tasks, one page per transaction.

A `dead` or `cancelled` task becomes `pending` with a new fence, and its record is ordered. Each
task is checked under its lock: it is replayed only if it still has the state and the fence that it
was stored with. So a repeated or concurrent replay, cancel or run of the task never replays it
twice.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import Connection, Row, delete, select, update

from docllm.producer.ledger import (
    audit,
    joins,
    outbox,
    replay_progress,
    tally,
    task_changes,
    waiting_rows,
)
from docllm.producer.ledger.audit import AuditKind
from docllm.producer.ledger.outbox import TASK
from docllm.producer.ledger.replay_progress import ItemState, ReplayRequest
from docllm.producer.ports import Order
from docllm.producer.replay import runs
from docllm.producer.replay.runs import Page
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.ledger.tables import batch, dead_letter, replay_run, task, task_input
from docllm.schemas.runtime import crash
from docllm.schemas.task.failures import TallyOutcome
from docllm.schemas.task.line.overrides import with_document
from docllm.schemas.task.record.envelope import digest
from docllm.schemas.task.states import Status


def apply(
    connection: Connection, group: str, run_id: int, request: ReplayRequest, after: int, limit: int
) -> Page | None:
    """Replay at most `limit` tasks of a run with ids above `after`; None if none waits."""
    taken = runs.take(connection, run_id, TASK, after, limit)
    waiting = {item.item_id: item.fence for item in taken}
    if not waiting:
        return None
    early = outbox.ordered(connection, group, "dlq") & waiting.keys()
    items = {task_id: fence for task_id, fence in waiting.items() if task_id not in early}
    opening = _to_open(connection, items, run_id) if request.selection.cancelled else {}
    ended_batches = _ended_batches(connection, items) - opening.keys()
    locked = _locked(connection, items)
    with_input = _with_input(connection, items)
    rows = [
        row
        for row in locked
        if _is_unchanged(row, items, request)
        and row.batch_id not in ended_batches
        and row.id in with_input
    ]
    _reopen(
        connection,
        group,
        {row.batch_id: opening[row.batch_id] for row in rows if row.batch_id in opening},
        run_id,
    )
    ids = [row.id for row in rows]
    orders = _to_pending(connection, group, request, rows) if rows else []
    new_documents = {item.item_id: item.document for item in taken if item.document}
    documents = {row.id: new_documents[row.id] for row in rows if row.id in new_documents}
    _change(connection, group, run_id, request, rows, documents)
    skipped = items.keys() - set(ids)
    runs.finish(connection, run_id, TASK, {ItemState.REPLAYED: ids, ItemState.SKIPPED: skipped})
    return Page(max(waiting), len(items), tuple(orders), early=len(early))


def _locked(connection: Connection, ids: Collection[int]) -> Sequence[Any]:
    columns = (
        task.c.id,
        task.c.batch_id,
        task.c.type,
        task.c.tenant,
        task.c.route,
        task.c.status,
        task.c.fence,
        task.c.replays,
        task.c.lane,
        task.c.task_key,
        task.c.digest,
        task.c.parent_id,
        task.c.join_role,
    )
    return connection.execute(
        select(*columns).where(task.c.id.in_(sorted(ids))).order_by(task.c.id).with_for_update()
    ).all()


def _with_input(connection: Connection, ids: Collection[int]) -> set[int]:
    """Return those of these tasks whose input no purge has deleted."""
    query = select(task_input.c.task_id).where(task_input.c.task_id.in_(sorted(ids)))
    return set(connection.execute(query).scalars())


def _is_unchanged(row: Row[Any], items: Mapping[int, int], request: ReplayRequest) -> bool:
    expected = Status.CANCELLED if request.selection.cancelled else Status.DEAD
    return bool(row.status == expected and row.fence == items[row.id] and row.replays < request.cap)


def _ended_batches(connection: Connection, ids: Collection[int]) -> set[int]:
    """Lock the batches of these tasks; return those that are cancelled or archived.

    A task that is replayed in a cancelled batch would be cancelled again. An archive holds what its
    batch was at the end, so nothing may run there.
    """
    of_tasks = select(task.c.batch_id).where(task.c.id.in_(sorted(ids))).distinct()
    batch_ids = sorted(connection.execute(of_tasks).scalars())
    marks = (batch.c.cancelled_at, batch.c.archived_at)
    query = select(batch.c.id, *marks).where(batch.c.id.in_(batch_ids)).order_by(batch.c.id)
    rows = connection.execute(query.with_for_update(read=True)).all()
    return {row.id for row in rows if any(tuple(row)[1:])}


def _to_open(connection: Connection, ids: Collection[int], run_id: int) -> dict[int, str]:
    """Lock the batches of these cancelled tasks that the run may reopen; return their names.

    A batch that was cancelled after the run was requested stays cancelled, because the later order
    wins.
    """
    batches = (
        select(task.c.batch_id)
        .where(task.c.id.in_(sorted(ids)), task.c.status == int(Status.CANCELLED))
        .distinct()
    )
    batch_ids = sorted(connection.execute(batches).scalars())
    requested_at = (
        select(replay_run.c.created_at).where(replay_run.c.id == run_id).scalar_subquery()
    )
    cancelled_before = (
        select(batch.c.id, batch.c.name)
        .where(
            batch.c.id.in_(batch_ids),
            batch.c.cancelled_at <= requested_at,
            batch.c.archived_at.is_(None),
        )
        .order_by(batch.c.id)
    )
    return {row.id: row.name for row in connection.execute(cancelled_before.with_for_update())}


def _reopen(connection: Connection, group: str, names: Mapping[int, str], run_id: int) -> None:
    """Reopen these batches, and record it in the audit."""
    run = replay_progress.find(connection, run_id) if names else None
    for batch_id, name in names.items():
        connection.execute(update(batch).where(batch.c.id == batch_id).values(cancelled_at=None))
        detail = f"batch {name}: replay {run_id} of cancelled tasks"
        audit.write(
            connection,
            group=group,
            actor=run.actor if run else "",
            action="reopen",
            kind=AuditKind.BATCH,
            target=name,
            detail=detail,
        )


def _to_pending(
    connection: Connection, group: str, request: ReplayRequest, rows: Sequence[Row[Any]]
) -> list[Order]:
    ids = [row.id for row in rows]
    letters = {} if request.selection.cancelled else _letters(connection, ids)
    values = {
        "attempt": 0,
        "lease_losses": 0,
        "replays": task.c.replays + 1,
        "owner": 0,
        "due_at": utc_now(),
        "carrier": outbox.LANE_CARRIER,
    }
    connection.execute(
        update(task)
        .where(task.c.id.in_(ids))
        .values(status=int(Status.PENDING), fence=task.c.fence + 1, **values)
    )
    connection.execute(delete(dead_letter).where(dead_letter.c.task_id.in_(ids)))
    waiting_rows.count_anew(connection, ids)
    tally.write(
        connection, [change for row in rows for change in _tally_changes(row, letters.get(row.id))]
    )
    waits = joins.wait_again(connection, group, rows)
    with_record = [row for row in rows if row.id not in waits] if waits else rows
    return outbox.place_in_lanes(connection, group, with_record, fences_on=1)


def _change(
    connection: Connection,
    group: str,
    run_id: int,
    request: ReplayRequest,
    rows: Sequence[Row[Any]],
    documents: Mapping[int, str],
) -> None:
    """Note what the replay changes of these tasks, and write what is new of their documents.

    A record of an earlier publication has the former digest, by which a claim knows it as stale.
    """
    changed = [row for row in rows if request.overrides or row.id in documents]
    if not changed:
        return
    former = {row.id: bytes(row.digest) for row in changed if row.id in documents}
    fences = {row.id: row.fence + 1 for row in changed}
    task_changes.write(connection, run_id, fences, former)
    refreshed = [row for row in changed if row.id in documents]
    if not refreshed:
        return
    bodies = task_changes.bodies(connection, former)
    run = replay_progress.find(connection, run_id)
    lines, audits = [], []
    for row in refreshed:
        body, was, now = with_document(bodies[row.id], orjson.loads(documents[row.id]))
        lines.append({"of_task": row.id, "line": body, "stamp": digest(row.task_key, body)})
        audits.append(f"replay {run_id}: {was} -> {now}")
    task_changes.write_lines(connection, lines)
    crash.reach("replay.documents_written")
    for row, detail in zip(refreshed, audits, strict=True):
        audit.write(
            connection,
            group=group,
            actor=run.actor if run else "",
            action="refresh document",
            kind=AuditKind.TASK,
            target=row.task_key.decode(errors="backslashreplace"),
            detail=detail,
            items=1,
        )


def _letters(connection: Connection, ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    rows = connection.execute(select(dead_letter).where(dead_letter.c.task_id.in_(ids)))
    return {row["task_id"]: dict(row) for row in rows.mappings()}


def _tally_changes(row: Row[Any], letter: Mapping[str, Any] | None) -> list[tally.TallyChange]:
    """Return the counts of one replay: the task leaves its end and enters `pending`."""
    end = tally.cancelled(row, -1) if letter is None else tally.died(letter, -1)
    replayed = tally.TallyChange(
        batch_id=row.batch_id,
        type=row.type,
        route="",
        state=Status.PENDING,
        outcome=TallyOutcome.REPLAYED,
        tenant=row.tenant,
    )
    return [end, replayed]
