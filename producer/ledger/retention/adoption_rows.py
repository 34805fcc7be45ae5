"""Adopts an archive that the ledger does not know, for example after a backup was restored.

The batch is marked as archived and as being purged, so nothing can be loaded into it. Then its open
tasks end without hooks: they ended before, as the archive shows, and their hooks have run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select, update

from docllm.producer.ledger import audit, guards, store, tally
from docllm.producer.ledger.audit import AuditKind
from docllm.producer.ledger.batch_ids import id_range
from docllm.producer.ledger.retention import archive_rows
from docllm.producer.ledger.retention.archive_rows import Contents
from docllm.producer.ledger.retention.erasure_rows import ERASED
from docllm.producer.ledger.store import Batch
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.ledger.query_plans import along_open
from docllm.schemas.ledger.sql import NEVER_TIME, utc_now
from docllm.schemas.ledger.tables import archive, batch, hook, task
from docllm.schemas.task.hooks import HookState
from docllm.schemas.task.states import OPEN, Status

PAGE = 500


@dataclass(frozen=True, slots=True)
class Adoptable:
    """An archive as its manifest describes it. `made_by`: schema revision and version of docllm."""

    uri: str
    format: str
    made_by: tuple[str, str]
    contents: Contents


@dataclass(frozen=True, slots=True)
class LedgerTask:
    """A task of the ledger, as far as an archive must have it."""

    id: int
    key: bytes
    digest: bytes
    status: Status


def now(connection: Connection) -> datetime:
    """Return the database's time, in UTC without a zone."""
    time: datetime = archive_rows.as_time(connection.execute(select(utc_now())).scalar_one())
    return time


def of_keys(connection: Connection, batch_id: int, keys: Sequence[bytes]) -> list[LedgerTask]:
    """Return the tasks of the batch with these keys."""
    query = select(task.c.id, task.c.task_key, task.c.digest, task.c.status)
    rows = connection.execute(query.where(task.c.batch_id == batch_id, task.c.task_key.in_(keys)))
    return [
        LedgerTask(row.id, bytes(row.task_key), bytes(row.digest), Status(row.status))
        for row in rows
    ]


def missing(
    connection: Connection, batch_id: int, ids: tuple[int, int], in_archive: bytearray
) -> bytes | None:
    """Return the key of a task in the id range that the archive lacks; None if it has all.

    `in_archive` has a 1 for each id from the first one on that the archive has. An erased task has
    no content left, so no archive needs to have it.
    """
    first_id, last_id = ids
    query = select(task.c.id, task.c.batch_id, task.c.task_key).order_by(task.c.id).limit(PAGE)
    next_id = first_id
    while rows := connection.execute(query.where(task.c.id.between(next_id, last_id))).all():
        for row in rows:
            key = bytes(row.task_key)
            is_erased = key.startswith(ERASED)
            if row.batch_id == batch_id and not in_archive[row.id - first_id] and not is_erased:
                return key
        next_id = rows[-1].id + 1
    return None


def adopt(
    connection: Connection,
    named: tuple[str, str],
    taken: Adoptable,
    compared_at: datetime,
    actor: str,
) -> Batch:
    """Mark the batch as archived there, in one transaction; make it if the ledger has none.

    `named` are the group and the batch. Its load, its hooks and its guards had ended when it was
    archived, so they end. Raises UnsafeStateError if a task has changed since `compared_at`.
    """
    group, name = named
    if name == store.direct_batch(group):
        raise UnsafeStateError(f"batch {name!r} holds tasks of the inbox and is never archived")
    if store.find_batch(connection, name) is None:
        store.open_batch(connection, name, group)
    target = store.require_batch(connection, group, name)
    connection.execute(select(batch.c.id).where(batch.c.id == target.id).with_for_update())
    if archive_rows.last_change(connection, target.id) >= compared_at:
        raise UnsafeStateError(
            f"batch {name!r} changed while its archive was read; stop the agents and loads, and "
            "run the command again"
        )
    if is_begun(connection, target.id, taken.uri):
        return target
    _store(connection, target.id, taken)
    _end(connection, target.id)
    guards.open_all(connection, group, target.id, actor, "its archive was adopted")
    audit.write(
        connection,
        group=group,
        actor=actor,
        action="adopt",
        kind=AuditKind.BATCH,
        target=name,
        detail=f"batch {name} from {taken.uri}",
        items=taken.contents.tasks,
    )
    return target


def _store(connection: Connection, batch_id: int, taken: Adoptable) -> None:
    """Write the row of an archive."""
    values = {field: getattr(taken.contents, field) for field in Contents.__slots__}
    values |= {"batch_id": batch_id, "uri": taken.uri, "format": taken.format}
    values |= {"revision": taken.made_by[0], "version": taken.made_by[1]}
    connection.execute(insert(archive).values(values | {"verified_at": utc_now()}))


def _end(connection: Connection, batch_id: int) -> None:
    """Mark a batch as archived and as one whose rows are to go; delete the hooks that may run."""
    ids = id_range(connection, batch_id)
    marks = ["archived_at", "purging_at", "closed_at"]
    marks += ["purged_at"] if ids[0] > ids[1] else []
    marked = {mark: func.coalesce(batch.c[mark], utc_now()) for mark in marks}
    connection.execute(update(batch).where(batch.c.id == batch_id).values(marked))
    may_run = (hook.c.batch_id == batch_id, hook.c.state != int(HookState.GAVE_UP))
    connection.execute(delete(hook).where(hook.c.task_id.between(*ids), *may_run))


def is_begun(connection: Connection, batch_id: int, uri: str) -> bool:
    """Return whether an adoption has marked the batch as archived there."""
    newest = archive_rows.newest(connection, [batch_id]).get(batch_id)
    purging_at = select(batch.c.purging_at).where(batch.c.id == batch_id)
    is_marked = connection.execute(purging_at).scalar() is not None
    return newest is not None and newest.uri == uri and is_marked


def finish(connection: Connection, batch_id: int) -> None:
    """Mark the adoption as complete, once the batch's open tasks have ended."""
    newest = archive_rows.newest(connection, [batch_id])[batch_id]
    of_archive = update(archive).where(archive.c.id == newest.id)
    connection.execute(of_archive.values(created_at=utc_now()))


def end_page(connection: Connection, batch_id: int) -> int:
    """Cancel a page of open tasks of an adopted batch, and no hook runs; return how many.

    Running tasks are ended too: their agents belong to the time before the restore. An agent that
    is still alive finds its claim gone.
    """
    is_open = (task.c.batch_id == batch_id, task.c.status.in_(OPEN))
    query = along_open(select(task.c.id).where(*is_open)).limit(PAGE)
    ids = sorted(connection.execute(query).scalars())
    columns = (task.c.id, task.c.batch_id, task.c.type, task.c.route, task.c.tenant)
    lock = select(*columns).where(task.c.id.in_(ids), task.c.status.in_(OPEN)).order_by(task.c.id)
    rows = connection.execute(lock.with_for_update()).all()
    if rows:
        ended = update(task).where(task.c.id.in_([row.id for row in rows]))
        final = {"status": int(Status.CANCELLED), "owner": 0, "due_at": NEVER_TIME}
        connection.execute(ended.values(final))
    tally.write(connection, map(tally.cancelled, rows))
    return len(rows)
