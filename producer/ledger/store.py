"""Accepts tasks in the ledger, before their records are published.

Rows, inputs and publish order are written in one transaction. Used by `docllm load` and by the
agent's intake. If the batch already has a key with the same content, the task is "already loaded".
If the content differs, that line is an error. Neither case stops the other lines.
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, func, select, update

from docllm.producer.ledger import guards, new_tasks
from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.ports import Order
from docllm.producer.text.printable import shown
from docllm.schemas.errors import ConfigError, UnsafeStateError
from docllm.schemas.ledger.sql import insert_new, utc_now
from docllm.schemas.ledger.tables import archive, batch, id_block, task, task_input
from docllm.schemas.task.record import header_names

PAGE = 500  # ids in one statement

_MAX_COMPARED = 1000  # batches whose names are compared with a wrong one


class Origin(StrEnum):
    """The origin of a batch, as its row stores it."""

    LOAD = ""
    INBOX = "intake"
    QUARANTINE = "replay of the quarantine"
    LETTERS = "dead letters"  # loaded back for a lost ledger, whoever made the batch there
    HTTP = "http"  # posted to `docllm serve`

    @classmethod
    def _missing_(cls, _value: object) -> "Origin":
        """Treat an origin of another version like a load's, so that the inbox cannot add tasks."""
        return cls.LOAD

    @property
    def foreign(self) -> bool:
        """Whether someone with write access to the inbox chose the ids and the batch."""
        return self in {Origin.INBOX, Origin.QUARANTINE}


_HALF_LOADED = (
    batch.c.closed_at.is_(None),
    batch.c.note == Origin.LOAD.value,
    batch.c.cancelled_at.is_(None),
    batch.c.archived_at.is_(None),
)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The outcome of a chunk, by position in it.

    `new` maps positions to task ids. `known` tasks were there already with the same content;
    `clashing` tasks are there with other content, which `stored` has as far as it is kept.
    `twins` counts the known ones that this load wrote before, or that stand in the chunk before.
    """

    new: dict[int, int]
    known: tuple[int, ...]
    clashing: tuple[int, ...]
    orders: tuple[Order, ...]
    stored: Mapping[int, bytes] = field(default_factory=dict)
    twins: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it is stored."""

    id: int
    name: str
    group: str
    cancelled: bool
    origin: Origin = Origin.LOAD
    purging: bool = False  # a purge has begun
    archived: bool = False


def direct_batch(group: str) -> str:
    """Return the batch for inbox records that name no batch."""
    return f"{group}-direct"


def open_batch(
    connection: Connection,
    name: str,
    group: str,
    origin: Origin = Origin.LOAD,
    *,
    joins: bool = False,
) -> Batch:
    """Return the batch of this name; create it if it is missing. Raises what `own_batch` raises."""
    existing = own_batch(connection, name, group, origin, joins=joins)
    if existing is None:
        connection.execute(
            insert_new(connection, batch), {"name": name, "group_name": group, "note": origin.value}
        )
        existing = own_batch(connection, name, group, origin, joins=joins)
    if existing is None:
        raise UnsafeStateError(f"batch {name!r} cannot be created")
    return existing


def own_batch(
    connection: Connection, name: str, group: str, origin: Origin, *, joins: bool = False
) -> Batch | None:
    """Return the batch of this name, or None if it does not exist.

    Raises ConfigError if the batch belongs to another group, and UnsafeStateError if it was purged
    or takes no tasks of this origin. Who writes to the inbox or posts over HTTP must not be able to
    add tasks to a loaded batch or to take its ids first, unless the configuration lets them join
    (`joins`). A batch that came back from dead letters takes tasks of all origins, because nobody
    knows who made it.
    """
    existing = find_batch(connection, name)
    if existing is not None and existing.group != group:
        raise ConfigError(
            f"batch {name!r} belongs to group {existing.group!r}; {_elsewhere(origin)}"
        )
    if existing is not None and existing.purging:
        raise _purged(existing)
    foreign = name == direct_batch(group) or (existing is not None and existing.origin.foreign)
    if origin is Origin.LOAD and existing is not None and existing.archived:
        raise _archived(connection, existing)
    if origin in {Origin.LOAD, Origin.HTTP} and foreign:
        raise UnsafeStateError(
            f"batch {name!r} holds tasks of the inbox, whose ids other programs choose; "
            f"{_elsewhere(origin)}"
        )
    if existing is None or foreign or joins:
        return existing
    if existing.origin is Origin.HTTP and origin not in {Origin.HTTP, Origin.LETTERS}:
        raise UnsafeStateError(
            f"batch {name!r} holds tasks that were posted over HTTP, whose ids other programs "
            f"choose; {_elsewhere(origin)}"
        )
    if existing.origin is Origin.LOAD and origin is Origin.HTTP:
        raise UnsafeStateError(
            f"batch {name!r} was made by a load and takes no task over HTTP; {_elsewhere(origin)}, "
            "or set join_batches = true in [serve]"
        )
    if existing.origin is Origin.LOAD and origin.foreign:
        raise UnsafeStateError(
            f"batch {name!r} was made by a load and takes no record of the inbox; "
            f"{_elsewhere(origin)}, or set join_batches = true in [inbox]"
        )
    return existing


def _elsewhere(origin: Origin) -> str:
    """Return how tasks of this origin get into another batch."""
    if origin is Origin.HTTP:
        return "name another one with ?batch="
    if origin.foreign:
        return f"name another one in {header_names.BATCH}"
    return "load into another one with --batch"


def find_batch(connection: Connection, name: str) -> Batch | None:
    """Return the batch of this name, or None."""
    row = connection.execute(select(batch).where(batch.c.name == name)).one_or_none()
    if row is None:
        return None
    cancelled, purging = row.cancelled_at is not None, row.purging_at is not None
    origin, archived = Origin(row.note), row.archived_at is not None
    return Batch(row.id, row.name, row.group_name, cancelled, origin, purging, archived)


def require_batch(connection: Connection, group: str, name: str) -> Batch:
    """Return the batch of this name. Raises ConfigError if the group has no such batch."""
    target = find_batch(connection, name)
    if target is None or target.group != group:
        raise no_batch(connection, group, name)
    return target


def no_batch(connection: Connection, group: str, name: str) -> ConfigError:
    """Return the error for a batch that a group does not have; it names the nearest one."""
    newest = (
        select(batch.c.name)
        .where(batch.c.group_name == group, batch.c.archived_at.is_(None))
        .order_by(batch.c.id.desc())
        .limit(_MAX_COMPARED)
    )
    matches = difflib.get_close_matches(name, connection.execute(newest).scalars(), 1)
    meant = f"; did you mean {matches[0]!r}?" if matches else ""
    return ConfigError(
        f"group {group} has no batch {name!r}{meant}; see: docllm status --group {group}"
    )


def batches_of(connection: Connection, group: str, name: str | None) -> dict[int, str]:
    """Return a group's batch names by id, oldest first; with `name`, only that batch.

    Archived batches are left out, unless one is named.
    """
    query = select(batch.c.id, batch.c.name).where(batch.c.group_name == group)
    query = query.where(batch.c.archived_at.is_(None) if name is None else batch.c.name == name)
    query = query.order_by(batch.c.id)
    return {row.id: row.name for row in connection.execute(query)}


def take_ids(connection: Connection, count: int) -> int:
    """Take `count` task ids from the counter; return the first."""
    connection.execute(insert_new(connection, id_block), {"name": "task", "next": 1})
    first_id = connection.execute(
        select(id_block.c.next).where(id_block.c.name == "task").with_for_update()
    ).scalar_one()
    connection.execute(
        update(id_block).where(id_block.c.name == "task").values(next=id_block.c.next + count)
    )
    return int(first_id)


def accept(
    connection: Connection,
    into: Batch,
    tasks: Sequence[NewTask],
    first_id: int,
    load_from: int | None = None,
) -> Accepted:
    """Write the new tasks under the ids from `first_id` on, and the order to publish them.

    `load_from` is the first id that the load took, None for one that takes a single chunk.
    Safe to run again after a lost answer: ids that exist already were written by the earlier try,
    together with their order. Raises UnsafeStateError if the batch is cancelled or purged, or if it
    is archived and does not have all of these tasks.
    """
    if _lock_and_see_archived(connection, into):
        return _of_archived(connection, into, tasks)
    ids = range(first_id, first_id + len(tasks))
    load_from = first_id if load_from is None else load_from
    if any_used(connection, ids):
        return _read_back(connection, into, tasks, ids, load_from)
    new_tasks.insert(connection, into.id, dict(zip(ids, tasks, strict=True)))
    accepted = _read_back(connection, into, tasks, ids, load_from)
    orders = new_tasks.complete(
        connection,
        into.group,
        into.id,
        {task_id: tasks[position] for position, task_id in accepted.new.items()},
    )
    stored = _stored(connection, into, tasks, accepted.clashing)
    return replace(accepted, orders=tuple(orders), stored=stored)


def matching(connection: Connection, into: Batch, tasks: Sequence[NewTask]) -> Accepted:
    """Return what `accept` would return for these tasks, without writing.

    New tasks have no ids yet: only their positions have a meaning. Raises UnsafeStateError if the
    batch was cancelled or purged when it was read.
    """
    if into.cancelled:
        raise _cancelled(into)
    if into.purging:
        raise _purged(into)
    rows = _rows(connection, into, [new_task.key for new_task in tasks])
    same_content = {
        position: rows[new_task.key].digest == new_task.digest
        for position, new_task in enumerate(tasks)
        if new_task.key in rows
    }
    new = {position: 0 for position in range(len(tasks)) if position not in same_content}
    known = tuple(position for position, is_same in same_content.items() if is_same)
    clashing = tuple(same_content.keys() - set(known))
    return Accepted(new, known, clashing, (), _stored(connection, into, tasks, clashing))


def _stored(
    connection: Connection, into: Batch, tasks: Sequence[NewTask], positions: Sequence[int]
) -> dict[int, bytes]:
    """Return the lines that the batch has in place of these tasks."""
    position_of = {tasks[position].key: position for position in positions}
    stored: dict[int, bytes] = {}
    keys = sorted(position_of)
    for start in range(0, len(keys), PAGE):
        query = (
            select(task.c.task_key, task_input.c.body)
            .join(task_input, task_input.c.task_id == task.c.id)
            .where(task.c.batch_id == into.id, task.c.task_key.in_(keys[start : start + PAGE]))
        )
        rows = connection.execute(query)
        stored |= {position_of[row.task_key]: bytes(row.body) for row in rows}
    return stored


def stored_line(connection: Connection, into: Batch, name: str) -> bytes | None:
    """Return the line of a batch's task as it was loaded; None if it has none, or no more."""
    line = select(task_input.c.body).join(task, task.c.id == task_input.c.task_id)
    of_task = line.where(task.c.batch_id == into.id, task.c.task_key == name.encode())
    return connection.execute(of_task).scalar()


def begin_load(connection: Connection, into: Batch) -> None:
    """Mark the batch as one whose load has begun, and open its guards.

    From now on it counts as a load's batch. Whoever loads it wants its tasks to run. Raises
    UnsafeStateError if it is archived.
    """
    begun = update(batch).where(batch.c.id == into.id, batch.c.archived_at.is_(None))
    if not connection.execute(begun.values(closed_at=None, note=Origin.LOAD.value)).rowcount:
        raise _archived(connection, into)
    guards.open_all(connection, into.group, into.id, "load", "the batch was loaded again")


def close_batch(connection: Connection, into: Batch) -> None:
    """Mark the batch as closed: its whole input was read."""
    connection.execute(
        update(batch)
        .where(batch.c.id == into.id, batch.c.closed_at.is_(None))
        .values(closed_at=utc_now())
    )


def half_loaded_message(name: str) -> str:
    """Return the message for a person about a half-loaded batch."""
    return (
        f"batch {shown(name)}: its load has not ended; "
        "if none is running, start the same load again for the rest"
    )


def half_loaded(connection: Connection, group: str) -> list[str]:
    """Return the names of the batches whose load has begun and not ended.

    Such a load still runs, or was stopped. Batches that were not loaded are never closed, and are
    left out.
    """
    of_group = select(batch.c.name).where(batch.c.group_name == group, *_HALF_LOADED)
    return list(connection.execute(of_group.order_by(batch.c.id)).scalars())


def is_half_loaded(connection: Connection, into: Batch) -> bool:
    """Return whether the batch's load has begun and not ended."""
    begun = select(batch.c.id).where(batch.c.id == into.id, *_HALF_LOADED)
    return connection.execute(begun).first() is not None


def _lock_and_see_archived(connection: Connection, into: Batch) -> bool:
    """Lock the batch's row, and return whether the batch is archived.

    A later cancel, archive or purge waits for this transaction, and finds its rows. Raises
    UnsafeStateError if the batch is cancelled or purged.
    """
    marks = (batch.c.cancelled_at, batch.c.archived_at, batch.c.purging_at)
    locked = select(*marks).where(batch.c.id == into.id).with_for_update(read=True)
    row = connection.execute(locked).one()
    if row.cancelled_at is not None:
        raise _cancelled(into)
    if row.purging_at is not None:
        raise _purged(into)
    return row.archived_at is not None


def _of_archived(connection: Connection, into: Batch, tasks: Sequence[NewTask]) -> Accepted:
    """Return which of these tasks an archived batch has. Raises UnsafeStateError if one is new."""
    accepted = matching(connection, into, tasks)
    if accepted.new:
        raise _archived(connection, into)
    return accepted


def _anew(into: Batch) -> str:
    """Return how tasks of this batch get into a new one."""
    is_http = into.origin is Origin.HTTP
    return _elsewhere(into.origin) if is_http else "load under another name with --batch"


def _archived(connection: Connection, into: Batch) -> UnsafeStateError:
    """Return the error for new tasks of an archived batch; it says where the archive lies."""
    verified = (archive.c.batch_id == into.id, archive.c.verified_at.is_not(None))
    newest = select(archive.c.uri).where(*verified).order_by(archive.c.id.desc()).limit(1)
    uri = connection.execute(newest).scalar()
    return UnsafeStateError(
        f"batch {into.name!r} is archived{f' at {uri}' if uri else ''} and takes no new tasks; "
        f"{_anew(into)}"
    )


def _cancelled(into: Batch) -> UnsafeStateError:
    return UnsafeStateError(f"batch {into.name!r} was cancelled; {_anew(into)}")


def _purged(into: Batch) -> UnsafeStateError:
    return UnsafeStateError(
        f"batch {into.name!r} was purged: its lines would be new tasks, and be called and paid "
        f"again; if you want that, {_anew(into)}"
    )


def any_used(connection: Connection, ids: range) -> bool:
    """Return whether a task has one of these ids."""
    return _count(connection, ids) > 0


def _count(connection: Connection, ids: range) -> int:
    query = select(func.count()).where(task.c.id.between(ids.start, ids.stop - 1))
    return connection.execute(query).scalar_one()


def _present(connection: Connection, ids: range) -> Collection[int]:
    if _count(connection, ids) == len(ids):
        return ids
    query = select(task.c.id).where(task.c.id.between(ids.start, ids.stop - 1))
    return set(connection.execute(query).scalars())


def _read_back(
    connection: Connection, into: Batch, tasks: Sequence[NewTask], ids: range, load_from: int
) -> Accepted:
    """Read back which ids exist, and compare the digests of the tasks without an id.

    The batch had the keys of those tasks before.
    """
    present = _present(connection, ids)
    if present is ids:
        return Accepted(dict(enumerate(ids)), (), (), ())
    new = {position: task_id for position, task_id in enumerate(ids) if task_id in present}
    other_positions = [position for position in range(len(tasks)) if position not in new]
    rows = _rows(connection, into, [tasks[position].key for position in other_positions])
    known: list[int] = []
    clashing: list[int] = []
    for position in other_positions:
        row = rows.get(tasks[position].key)
        is_same = row is not None and row.digest == tasks[position].digest
        (known if is_same else clashing).append(position)
    # A key that comes twice in the chunk is a twin even if an earlier load wrote it.
    older = {tasks[position].key for position in known}
    older = {key for key in older if rows[key].id < load_from}
    return Accepted(new, tuple(known), tuple(clashing), (), twins=len(known) - len(older))


def _rows(connection: Connection, into: Batch, keys: Sequence[bytes]) -> dict[bytes, Row[Any]]:
    """Return the stored id and digest of each of the batch's tasks that has one of these keys."""
    rows: dict[bytes, Row[Any]] = {}
    for start in range(0, len(keys), PAGE):
        page = sorted(keys[start : start + PAGE])
        query = select(task.c.task_key, task.c.digest, task.c.id).where(
            task.c.batch_id == into.id, task.c.task_key.in_(page)
        )
        rows.update((row.task_key, row) for row in connection.execute(query))
    return rows
