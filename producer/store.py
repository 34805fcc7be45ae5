"""Accepts tasks: rows, inputs and publish order in one transaction, before anything is on a topic.

Used by `producer load` and by the agent's intake. A key that is there with the same content is "already loaded", with other
content it is an error of that line; neither stops the others.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import Connection, func, select, update

from producer import outbox, tally
from producer.ports import Order
from producer.shown import shown
from schemas.bulk import insert_rows
from schemas.errors import ConfigError, UnsafeStateError
from schemas.sql import NEVER_TIME, insert_new, utc_now
from schemas.tables import batch, id_block, task, task_input
from schemas.task import Status

Result = TypeVar("Result")

PAGE = 500  # ids in one statement


class Origin(StrEnum):
    """Who made a batch, as its row notes it."""

    LOAD = ""
    INBOX = "intake"
    QUARANTINE = "replay of the quarantine"
    LETTERS = "dead letters"  # of a lost ledger, whoever made the batch there

    @classmethod
    def _missing_(cls, _value: object) -> "Origin":
        """Take what another version notes for a load's: the inbox adds nothing to it."""
        return cls.LOAD

    @property
    def foreign(self) -> bool:
        """Return whether a stranger chose the ids and the batch: whoever may write to the inbox."""
        return self in {Origin.INBOX, Origin.QUARANTINE}


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to accept. `raw_key` is the key of the record that brought it, `headers` that record's headers as JSON."""

    key: bytes
    digest: bytes
    value: bytes
    type: str
    tenant: str
    max_attempts: int
    expires_at: datetime | None
    raw_key: bytes | None
    headers: bytes | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of a chunk, by position: `new` maps to task ids; `known` were there; `clashing` are there with other content."""

    new: dict[int, int]
    known: tuple[int, ...]
    clashing: tuple[int, ...]
    orders: tuple[Order, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it is stored."""

    id: int
    name: str
    group: str
    cancelled: bool
    origin: Origin = Origin.LOAD


def direct_batch(group: str) -> str:
    """Return the batch of the inbox's records that name none."""
    return f"{group}-direct"


def open_batch(connection: Connection, name: str, group: str, origin: Origin = Origin.LOAD) -> Batch:
    """Return the batch of this name, made if it is not there. Raises what `own_batch` raises."""
    found = own_batch(connection, name, group, origin)
    if found is None:
        connection.execute(insert_new(connection, batch), {"name": name, "group_name": group, "note": origin.value})
        found = own_batch(connection, name, group, origin)
    if found is None:
        raise UnsafeStateError(f"batch {name!r} cannot be made")
    return found


def own_batch(connection: Connection, name: str, group: str, origin: Origin) -> Batch | None:
    """Return the batch of this name, None when it is not there.

    Raises ConfigError when it belongs to another group, and UnsafeStateError when it takes no tasks of
    this origin. Whoever may write to the inbox must neither add to what was loaded nor take its ids
    first; a batch that came back from dead letters takes both, as nobody knows who made it.
    """
    found = find_batch(connection, name)
    if found is not None and found.group != group:
        raise ConfigError(f"batch {name!r} belongs to group {found.group!r}; load into another one with --batch")
    foreign = name == direct_batch(group) or (found is not None and found.origin.foreign)
    if origin is Origin.LOAD and foreign:
        raise UnsafeStateError(f"batch {name!r} is for tasks of the inbox, whose ids others choose; load into another one with --batch")
    if origin.foreign and found is not None and found.origin is Origin.LOAD and not foreign:
        raise UnsafeStateError(f"batch {name!r} was made by a load and takes no record of the inbox; name another one in docllm-batch")
    return found


def find_batch(connection: Connection, name: str) -> Batch | None:
    """Return the batch of this name."""
    row = connection.execute(select(batch).where(batch.c.name == name)).one_or_none()
    return None if row is None else Batch(row.id, row.name, row.group_name, row.cancelled_at is not None, Origin(row.note))


def require_batch(connection: Connection, group: str, name: str) -> Batch:
    """Return the batch of this name. Raises ConfigError when the group has none."""
    found = find_batch(connection, name)
    if found is None or found.group != group:
        raise ConfigError(f"group {group} has no batch {name!r}; see: python -m producer status --group {group}")
    return found


def batches_of(connection: Connection, group: str, name: str | None) -> dict[int, str]:
    """Return the names of a group's batches, or the one of this name, by id, in the order in which they were made."""
    query = select(batch.c.id, batch.c.name).where(batch.c.group_name == group, batch.c.archived_at.is_(None)).order_by(batch.c.id)
    return {row.id: row.name for row in connection.execute(query if name is None else query.where(batch.c.name == name))}


def take_ids(connection: Connection, count: int) -> int:
    """Take `count` task ids from the counter; return the first."""
    connection.execute(insert_new(connection, id_block), {"name": "task", "next": 1})
    row = connection.execute(select(id_block.c.next).where(id_block.c.name == "task").with_for_update()).scalar_one()
    connection.execute(update(id_block).where(id_block.c.name == "task").values(next=id_block.c.next + count))
    return int(row)


def accept(connection: Connection, into: Batch, tasks: Sequence[NewTask], first_id: int) -> Accepted:
    """Write the tasks that are new under the ids from `first_id` on, and the order to publish them.

    Safe to run again after a lost answer: ids that are there already were written by the earlier try, order included.
    Raises UnsafeStateError when the batch is cancelled.
    """
    _lock_open(connection, into)
    ids = range(first_id, first_id + len(tasks))
    if _count(connection, ids):
        return _earlier(connection, into, tasks, ids)
    order_of = sorted(range(len(tasks)), key=lambda position: tasks[position].key)
    rows = [_row(into, tasks[position], ids[position]) for position in order_of]
    insert_rows(connection, task, rows, keep=True)
    result = _earlier(connection, into, tasks, ids)
    insert_rows(connection, task_input, [_input(tasks[position], key) for position, key in result.new.items()])
    items = [(outbox.TASK, key, 0) for key in result.new.values()]
    orders = outbox.place(connection, into.group, "tasks", items)
    types = Counter(tasks[position].type for position in result.new)
    tally.write(connection, [_loaded(into, kind, count) for kind, count in types.items()])
    return Accepted(result.new, result.known, result.clashing, tuple(orders))


def matching(connection: Connection, into: Batch, tasks: Sequence[NewTask]) -> Accepted:
    """Return what `accept` would say of these tasks, without writing; of the new ones their positions alone.

    Raises UnsafeStateError when the batch was cancelled as it was read.
    """
    if into.cancelled:
        raise _cancelled(into)
    digests = _digests(connection, into, [one.key for one in tasks])
    there = {position: digests[one.key] == one.digest for position, one in enumerate(tasks) if one.key in digests}
    new = {position: 0 for position in range(len(tasks)) if position not in there}
    known = tuple(position for position, same in there.items() if same)
    return Accepted(new, known, tuple(there.keys() - set(known)), ())


def begin_load(connection: Connection, into: Batch) -> None:
    """Note that an input is read into a batch, which is a load's from now on."""
    connection.execute(update(batch).where(batch.c.id == into.id).values(closed_at=None, note=Origin.LOAD.value))


def close_batch(connection: Connection, into: Batch) -> None:
    """Note that the whole input was read."""
    connection.execute(update(batch).where(batch.c.id == into.id, batch.c.closed_at.is_(None)).values(closed_at=utc_now()))


def told_half_loaded(name: str) -> str:
    """Return what a person is told of such a batch."""
    return f"batch {shown(name)}: its load has not ended; if none is running, start the same load again for the rest"


def half_loaded(connection: Connection, group: str) -> list[str]:
    """Return the batches of which a load has begun and not ended, by name: it runs, or was stopped. What others make is never closed."""
    begun = (batch.c.closed_at.is_(None), batch.c.note == Origin.LOAD.value, batch.c.cancelled_at.is_(None), batch.c.archived_at.is_(None))
    query = select(batch.c.name).where(batch.c.group_name == group, *begun).order_by(batch.c.id)
    return list(connection.execute(query).scalars())


def _lock_open(connection: Connection, into: Batch) -> None:
    """A cancel that comes later waits for this transaction and finds its rows."""
    cancelled = connection.execute(select(batch.c.cancelled_at).where(batch.c.id == into.id).with_for_update(read=True)).scalar_one()
    if cancelled is not None:
        raise _cancelled(into)


def _cancelled(into: Batch) -> UnsafeStateError:
    return UnsafeStateError(f"batch {into.name!r} was cancelled; load under another name with --batch")


def _count(connection: Connection, ids: range) -> int:
    query = select(func.count()).where(task.c.id.between(ids.start, ids.stop - 1))
    return connection.execute(query).scalar_one()


def _present(connection: Connection, ids: range) -> Collection[int]:
    if _count(connection, ids) == len(ids):
        return ids
    query = select(task.c.id).where(task.c.id.between(ids.start, ids.stop - 1))
    return set(connection.execute(query).scalars())


def _earlier(connection: Connection, into: Batch, tasks: Sequence[NewTask], ids: range) -> Accepted:
    """Read back which ids exist; look at the digests of the others, whose keys were there before."""
    present = _present(connection, ids)
    new = {position: key for position, key in enumerate(ids) if key in present}
    others = [position for position in range(len(tasks)) if position not in new]
    digests = _digests(connection, into, [tasks[position].key for position in others])
    clashing = tuple(position for position in others if digests.get(tasks[position].key) != tasks[position].digest)
    known = tuple(position for position in others if digests.get(tasks[position].key) == tasks[position].digest)
    return Accepted(new, known, clashing, ())


def _digests(connection: Connection, into: Batch, keys: Sequence[bytes]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for start in range(0, len(keys), PAGE):
        page = sorted(keys[start : start + PAGE])
        query = select(task.c.task_key, task.c.digest).where(task.c.batch_id == into.id, task.c.task_key.in_(page))
        found.update((row.task_key, row.digest) for row in connection.execute(query))
    return found


def _row(into: Batch, new: NewTask, task_id: int) -> dict[str, Any]:
    row = {
        "id": task_id,
        "batch_id": into.id,
        "task_key": new.key,
        "digest": new.digest,
        "type": new.type,
        "tenant": new.tenant,
        "max_attempts": new.max_attempts,
    }
    return row | {"expires_at": new.expires_at or NEVER_TIME}


def _input(new: NewTask, task_id: int) -> dict[str, Any]:
    return {"task_id": task_id, "raw_key": new.raw_key, "headers": new.headers, "body": new.value}


def _loaded(into: Batch, kind: str, count: int) -> tally.Change:
    return tally.Change(tally.Key(into.id, kind, "", Status.PENDING, tally.LOADED), count)
