"""The archives of batches: when a batch may be archived, and what is known of its archives.

A batch is archived once it is final. It is marked only after its files have been read back. Then
nothing can be loaded into it or replayed in it, and a task of it that has no row any more is done.
"""

import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from docllm.producer.ledger import audit, tally
from docllm.producer.ledger.audit import AuditKind
from docllm.producer.ledger.batch_ids import id_range
from docllm.producer.ledger.store import Batch, Origin, direct_batch, find_batch
from docllm.producer.text.times import written
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger.query_plans import along_open
from docllm.schemas.ledger.sql import LONG_AGO_TIME, utc_after, utc_now
from docllm.schemas.ledger.tables import archive, batch, guard, hook, replay_item, replay_run, task
from docllm.schemas.task.allowed_uris import uri_parts
from docllm.schemas.task.hooks import HookState
from docllm.schemas.task.states import OPEN

Archive = Row[Any]  # of `archive`


def refusal(connection: Connection, target: Batch) -> str:
    """Return why a batch cannot be archived or purged now, and what to do; empty if it can.

    It must be final, and nothing that is still to be done may name it.
    """
    if target.name == direct_batch(target.group):
        return (
            "it receives the inbox records that name no batch, at any time; let the sending "
            "programs name a batch, for example one for each day"
        )
    row = connection.execute(select(batch).where(batch.c.id == target.id)).one()
    is_loading = row.note == Origin.LOAD.value and row.closed_at is None
    if is_loading and row.cancelled_at is None:
        return "its load has not ended; if none is running, start the same load again"
    group, name = f"--group {target.group}", shlex.quote(target.name)
    refusals = (
        (
            _open_task(target.id),
            f"some of its tasks are not final; see: docllm status --batch {name} {group}",
        ),
        (_raised_guard(target.id), f"a guard holds it back; run: docllm guard open {name} {group}"),
        (
            _waiting_hook(connection, target.id),
            "hooks of its tasks have not run; agents whose settings name them run them",
        ),
        (
            _waiting_replay(connection, target),
            f"a replay has not ended; run: docllm replay --resume {group}",
        ),
    )
    reasons = (reason for query, reason in refusals if connection.execute(query).first())
    return next(reasons, "")


def _open_task(batch_id: int) -> Any:
    """Return the query for a task of the batch that is not final."""
    is_open = (task.c.batch_id == batch_id, task.c.status.in_(OPEN))
    return along_open(select(task.c.id).where(*is_open)).limit(1)


def _raised_guard(batch_id: int) -> Any:
    """Return the query for a guard that holds the batch back, or calls up its tasks."""
    is_raised = guard.c.opened_at.is_(None) | guard.c.called_at.is_(None)
    return select(guard.c.id).where(guard.c.batch_id == batch_id, is_raised).limit(1)


def _waiting_hook(connection: Connection, batch_id: int) -> Any:
    """Return the query for a hook of the batch that has neither run nor been given up."""
    in_id_range = hook.c.task_id.between(*id_range(connection, batch_id))
    waits = (hook.c.batch_id == batch_id, hook.c.state != int(HookState.GAVE_UP))
    return select(hook.c.id).where(in_id_range, *waits).limit(1)


def _waiting_replay(connection: Connection, target: Batch) -> Any:
    """Return the query for a run of the group that may still replay tasks of the batch."""
    in_id_range = replay_item.c.item_id.between(*id_range(connection, target.id))
    waits = (replay_item.c.run_id == replay_run.c.id, replay_item.c.state == 0)
    named = (
        select(replay_item.c.item_id)
        .join(task, task.c.id == replay_item.c.item_id)
        .where(*waits, replay_item.c.kind == 0, in_id_range, task.c.batch_id == target.id)
    )
    is_open = (replay_run.c.group_name == target.group, replay_run.c.ended_at.is_(None))
    may_name = replay_run.c.stored_at.is_(None) | named.exists()
    return select(replay_run.c.id).where(*is_open, may_name).limit(1)


def begin(
    connection: Connection,
    target: Batch,
    *,
    folder: str,
    file_format: str,
    made_by: tuple[str, str],
) -> Archive:
    """Return the batch's unfinished archive below `folder`, or a new archive.

    `made_by` is the schema revision and docllm's version. An unfinished archive is given up if
    another version began it, or if the batch has changed since. Raises UnsafeStateError if the
    batch cannot be archived now.
    """
    _require_final(connection, target)
    changed_at = last_change(connection, target.id)
    for begun in _unfinished(connection, target.id, folder):
        is_same = (begun.format, begun.revision, begun.version) == (file_format, *made_by)
        if is_same and changed_at <= begun.created_at:
            return begun
        give_up(connection, begun.id)
    row = {"batch_id": target.id, "format": file_format, "revision": made_by[0]}
    added = connection.execute(insert(archive).values(row | {"version": made_by[1]}))
    (key,) = added.inserted_primary_key or (0,)
    named = update(archive).where(archive.c.id == key)
    connection.execute(named.values(uri=f"{folder}{key}/"))
    return connection.execute(select(archive).where(archive.c.id == key)).one()


def _unfinished(connection: Connection, batch_id: int, folder: str) -> list[Row[Any]]:
    open_ones = select(archive).where(
        archive.c.batch_id == batch_id,
        archive.c.verified_at.is_(None),
        archive.c.ended_at.is_(None),
    )
    rows = connection.execute(open_ones.order_by(archive.c.id)).all()
    return [row for row in rows if row.uri == f"{folder}{row.id}/"]


def give_up(connection: Connection, archive_id: int) -> None:
    """Note that an archive will not be finished; its files stay where they are."""
    connection.execute(update(archive).where(archive.c.id == archive_id).values(ended_at=utc_now()))


def finish(
    connection: Connection,
    target: Batch,
    new_archive: Archive,
    contents: Mapping[str, Any],
    actor: str,
) -> bool:
    """Mark an archive as verified and its batch as archived, in one transaction.

    `contents` are the columns of `archive` that say what is in its files. Returns False if the
    batch has changed since the archive was begun: then it is given up.
    """
    locked = select(batch.c.archived_at).where(batch.c.id == target.id).with_for_update()
    archived_at = connection.execute(locked).scalar_one()
    if (
        _archive_refusal(connection, target)
        or last_change(connection, target.id) > new_archive.created_at
    ):
        give_up(connection, new_archive.id)
        return False
    verified = update(archive).where(archive.c.id == new_archive.id)
    connection.execute(verified.values(verified_at=utc_now(), **contents))
    if archived_at is None:
        mark = update(batch).where(batch.c.id == target.id)
        connection.execute(mark.values(archived_at=utc_now()))
    audit.write(
        connection,
        group=target.group,
        actor=actor,
        action="archive",
        kind=AuditKind.BATCH,
        target=target.name,
        detail=f"batch {target.name} to {new_archive.uri}",
        items=contents["tasks"],
    )
    return True


def last_change(connection: Connection, batch_id: int) -> datetime:
    """Return when a task of the batch last changed its state; a time long ago if none ever did.

    Every move of a task is counted, so nothing has changed since a later time.
    """
    batch_counts = tally.counts(lambda column: [column["batch_id"] == batch_id])
    changed_at = connection.execute(select(func.max(batch_counts.c.newest_at))).scalar()
    return as_time(changed_at)


def as_time(value: Any) -> datetime:
    """Return a time; SQLite returns the greatest of some times as a text."""
    if value is None:
        return LONG_AGO_TIME
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def quiet(connection: Connection, group: str, *, age_s: float, archived: bool) -> list[Batch]:
    """Return the batches that have not changed for `age_s`, the oldest first.

    They are those that are archived and not purged, or those that are not archived. Left out are
    batches with open work or without tasks.
    """
    before = connection.execute(select(utc_after(-age_s))).scalar_one()
    at = batch.c.archived_at
    conditions = [batch.c.group_name == group, batch.c.purged_at.is_(None)]
    conditions += [batch.c.created_at < utc_after(-age_s)]
    conditions += [at.is_not(None) if archived else at.is_(None)]
    names = connection.execute(
        select(batch.c.name).where(*conditions).order_by(batch.c.id)
    ).scalars()
    targets = [target for name in names.all() if (target := find_batch(connection, name))]
    return [
        target
        for target in targets
        if LONG_AGO_TIME < last_change(connection, target.id) < as_time(before)
        and not refusal(connection, target)
    ]


def archived(connection: Connection, group: str) -> int:
    """Return how many batches of the group are archived."""
    query = select(func.count()).where(
        batch.c.group_name == group, batch.c.archived_at.is_not(None)
    )
    return int(connection.execute(query).scalar_one())


def newest(connection: Connection, batch_ids: Iterable[int]) -> dict[int, Archive]:
    """Return the newest verified archive of each of these batches that has one."""
    query = select(archive).where(
        archive.c.batch_id.in_(sorted(set(batch_ids))), archive.c.verified_at.is_not(None)
    )
    rows = connection.execute(query.order_by(archive.c.id))
    return {row.batch_id: row for row in rows}


def covering(connection: Connection, batch_id: int) -> Archive | None:
    """Return the newest verified archive if the batch has not changed since; otherwise None.

    A program of an older version may have loaded or replayed tasks after the batch was archived.
    """
    last = newest(connection, [batch_id]).get(batch_id)
    if last is None or last_change(connection, batch_id) > last.created_at:
        return None
    return last


def _require_final(connection: Connection, target: Batch) -> None:
    if reason := _archive_refusal(connection, target):
        raise UnsafeStateError(f"batch {target.name!r} cannot be archived: {reason}")


def _archive_refusal(connection: Connection, target: Batch) -> str:
    """Return why a batch cannot be archived now; empty if it can."""
    purging_at = select(batch.c.purging_at).where(batch.c.id == target.id)
    if connection.execute(purging_at).scalar() is None:
        return refusal(connection, target)
    whole = covering(connection, target.id)
    keep = f"; keep the archive {whole.uri}, or put it back if it is gone" if whole else ""
    return f"rows of it are purged, so a new archive would lack them{keep}"


def archive_sentence(connection: Connection, name: str) -> str:
    """Return in words what became of a batch; empty if it is not archived, or does not exist."""
    row = connection.execute(select(batch).where(batch.c.name == name)).one_or_none()
    if row is None or row.archived_at is None:
        return ""
    state = f"was archived at {written(row.archived_at)}"
    if row.purged_at is not None:
        state = f"was purged at {written(row.purged_at)}"
    elif row.purging_at is not None:
        state = f"has been purged in part since {written(row.purging_at)}"
    last = newest(connection, [row.id]).get(row.id)
    where = "it has no archive" if last is None else f"its archive is {_reading(last)}"
    return f"batch {row.name!r} {state}; {where}"


def require_rows(connection: Connection, name: str) -> None:
    """Raise UnsafeStateError if the rows of a batch are purged; it says where its archive lies."""
    purged = select(batch.c.purged_at).where(batch.c.name == name)
    if connection.execute(purged).scalar() is not None:
        raise UnsafeStateError(f"nothing can be exported: {archive_sentence(connection, name)}")


def _reading(made: Archive) -> str:
    """Return the address of an archive, with the command that reads it if it is near."""
    parts = uri_parts(made.uri)
    if parts.scheme != "file" or made.format != "jsonl":
        return str(made.uri)
    folder = shlex.quote(str(PurePosixPath("/", *parts.segments)))
    return f"{made.uri}; to read it: zcat {folder}/part-*.jsonl.gz"
