"""Makes the follow-ups of tasks that succeed, in the transaction of their settle.

Only an accepted success makes tasks, so they are made exactly as often as their parent succeeds. In
a cancelled batch no task is made: the parent is cancelled too, and runs again if the batch is
replayed. If the batch already has the follow-up's key, equal content means that the task exists
already; different content makes the parent die. A join's key must be new.

Rows are locked in this order: `batch`, `task`. A cancel waits for this transaction and finds its
rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, select

from docllm.agent.ports import Settlement
from docllm.agent.ports.outcome import Cancelled, Dead, Failure, FollowUp, Succeeded
from docllm.producer.ledger import joins, new_tasks
from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.ports import Order
from docllm.schemas.ledger.bulk import insert_rows
from docllm.schemas.ledger.tables import batch, task
from docllm.schemas.ledger.tables import follow_up as child_row
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.joins import JoinRole
from docllm.schemas.task.record.envelope import digest
from docllm.schemas.text.wording import one_line

PAGE = 500  # keys in one statement

_LOCK = (
    select(batch.c.id, batch.c.cancelled_at)
    .where(batch.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(batch.c.id)
    .with_for_update(read=True)
)
_STORED = select(task.c.task_key, task.c.digest, task.c.id).where(
    task.c.batch_id == bindparam("batch"), task.c.task_key.in_(bindparam("keys", expanding=True))
)
_PRESENT = select(task.c.id).where(task.c.id.in_(bindparam("ids", expanding=True)))
_DELETE = delete(task).where(task.c.id.in_(bindparam("ids", expanding=True)))

TaskKey = tuple[int, bytes]  # batch, key


class StoredTask(NamedTuple):
    """A task that a batch has already under the key of a follow-up."""

    digest: bytes
    id: int


@dataclass(slots=True)
class NewFollowUps:
    """The tasks that a settle makes, by batch and id.

    `links` are the siblings, by parent, for which joins wait although they were made by others.
    """

    tasks: dict[int, dict[int, NewTask]] = field(default_factory=dict)
    links: set[tuple[int, int]] = field(default_factory=set)

    @property
    def ids(self) -> list[int]:
        """The ids of all tasks."""
        return sorted(task_id for batch_tasks in self.tasks.values() for task_id in batch_tasks)

    @property
    def joined(self) -> set[str]:
        """The parents that have ordered a join, as keys of what these wait for."""
        tasks = (new for batch_tasks in self.tasks.values() for new in batch_tasks.values())
        return {joins.waiting_for(new.parent_id).key for new in tasks if new.join_role.is_join}


def ordered(settlement: Settlement) -> tuple[FollowUp, ...]:
    """Return the follow-ups that an attempt ordered."""
    outcome = settlement.outcome
    return outcome.follow_ups if isinstance(outcome, Succeeded) else ()


def lock_batches(connection: Connection, settlements: Sequence[Settlement]) -> set[int]:
    """Lock the batches that would get follow-ups; return which of them are cancelled."""
    ids = {settlement.row.batch_id for settlement in settlements if ordered(settlement)}
    rows = connection.execute(_LOCK, {"ids": sorted(ids)}).all() if ids else ()
    return {row.id for row in rows if row.cancelled_at is not None}


def insert(
    connection: Connection,
    accepted: Sequence[Settlement],
    cancelled: set[int],
    first_id: int,
) -> tuple[Sequence[Settlement], NewFollowUps]:
    """Write the rows of the follow-ups; return the settlements as they may be settled.

    A parent whose follow-ups may not be made is cancelled or dies.
    """
    if not any(map(ordered, accepted)):
        return accepted, NewFollowUps()
    open_ones = [_in_open_batch(settlement, cancelled) for settlement in accepted]
    while True:
        stored = _stored(connection, open_ones)
        decided, new_follow_ups = _decide(open_ones, stored, first_id)
        for batch_id, tasks in new_follow_ups.tasks.items():
            new_tasks.insert(connection, batch_id, tasks)
        if _all_present(connection, new_follow_ups.ids):
            return decided, new_follow_ups
        # A load or another agent took a key since the digests were read.
        _remove(connection, new_follow_ups.ids)


def complete(connection: Connection, group: str, new_follow_ups: NewFollowUps) -> list[Order]:
    """Write what belongs to the inserted rows; return the orders for their first records."""
    links = [
        {"parent_id": new.parent_id, "task_id": task_id}
        for tasks in new_follow_ups.tasks.values()
        for task_id, new in tasks.items()
    ]
    links += [{"parent_id": of, "task_id": task_id} for of, task_id in new_follow_ups.links]
    insert_rows(connection, child_row, links)
    orders = [
        order
        for batch_id, tasks in sorted(new_follow_ups.tasks.items())
        for order in new_tasks.complete(connection, group, batch_id, tasks)
    ]
    if parents := new_follow_ups.joined:
        orders += joins.call_up(connection, group, parents)  # those without an open sibling
    return orders


def _in_open_batch(settlement: Settlement, cancelled: set[int]) -> Settlement:
    if ordered(settlement) and settlement.row.batch_id in cancelled:
        return replace(settlement, outcome=Cancelled(settlement.outcome.spent))
    return settlement


def _stored(connection: Connection, settlements: Sequence[Settlement]) -> dict[TaskKey, StoredTask]:
    """Return the tasks that the batches have under the follow-ups' keys."""
    keys: dict[int, set[bytes]] = {}
    for settlement in settlements:
        batch_keys = keys.setdefault(settlement.row.batch_id, set())
        batch_keys.update(follow_up.key.encode() for follow_up in ordered(settlement))
    stored: dict[TaskKey, StoredTask] = {}
    for batch_id, page in _pages(keys):
        for key, stored_digest, task_id in connection.execute(
            _STORED, {"batch": batch_id, "keys": page}
        ):
            stored[batch_id, bytes(key)] = StoredTask(bytes(stored_digest), task_id)
    return stored


def _pages(keys: Mapping[int, set[bytes]]) -> Iterator[tuple[int, list[bytes]]]:
    for batch_id, batch_keys in sorted(keys.items()):
        in_order = sorted(batch_keys)
        for start in range(0, len(in_order), PAGE):
            yield batch_id, in_order[start : start + PAGE]


def _decide(
    settlements: Sequence[Settlement], stored: Mapping[TaskKey, StoredTask], first_id: int
) -> tuple[list[Settlement], NewFollowUps]:
    """Return the settlements as they are settled, and the tasks to make.

    A task that two parents order alike is made once, for the first of them. Joins are ordered last,
    so whatever takes tasks by their ids, a replay for example, takes the siblings first.
    """
    known, new_follow_ups, ids = dict(stored), NewFollowUps(), count(first_id)
    decided = []
    for settlement in settlements:
        tasks = _tasks(settlement)
        batch_id = settlement.row.batch_id
        clash = next((new for new in tasks if _clashes(new, known.get((batch_id, new.key)))), None)
        if clash is not None:
            decided.append(_clashed(settlement, clash))
            continue
        decided.append(settlement)
        for new in tasks:
            if (made := known.get((batch_id, new.key))) is None:
                known[batch_id, new.key] = StoredTask(new.digest, task_id := next(ids))
                new_follow_ups.tasks.setdefault(batch_id, {})[task_id] = new
            elif new.join_role:
                new_follow_ups.links.add((new.parent_id, made.id))
    return decided, new_follow_ups


def _tasks(settlement: Settlement) -> list[NewTask]:
    """Return the tasks that an attempt ordered; if a join is among them, for its siblings too."""
    tasks = [_task(settlement, follow_up) for follow_up in ordered(settlement)]
    if tasks and tasks[-1].join_role.is_join:
        for new in tasks:
            new.join_role = new.join_role or JoinRole.SIBLING
    return tasks


def _clashes(new: NewTask, stored: StoredTask | None) -> bool:
    """Return whether a follow-up cannot be made; a join waits for the tasks of one parent."""
    return stored is not None and (new.join_role.is_join or stored.digest != new.digest)


def _task(settlement: Settlement, follow_up: FollowUp) -> NewTask:
    key = follow_up.key.encode()
    return NewTask(
        key=key,
        digest=digest(key, follow_up.value),
        value=follow_up.value,
        type=follow_up.type,
        tenant=follow_up.tenant,
        max_attempts=follow_up.max_attempts,
        expires_at=_without_zone(follow_up.deadline),
        not_before=_without_zone(follow_up.not_before),
        raw_key=key,
        lane=follow_up.lane,
        parent_id=settlement.row.task_id,
        depth=settlement.row.depth + 1,
        join_role=follow_up.join_role,
    )


def _without_zone(time: datetime | None) -> datetime | None:
    return time and time.astimezone(UTC).replace(tzinfo=None)


def _clashed(settlement: Settlement, new: NewTask) -> Settlement:
    is_join = new.join_role.is_join
    what, how = ("join", "") if is_join else ("follow-up", " with other content")
    text = one_line(
        f"its {what} {new.key.decode()!r} is in batch {settlement.row.batch!r} already{how}; give "
        f"each {what} an id of its own, for example one that begins with its parent's id"
    )
    failure = Failure(ErrorClass.FOLLOW_CLASH, text)
    return replace(settlement, outcome=Dead(failure, settlement.outcome.spent))


def _all_present(connection: Connection, ids: Sequence[int]) -> bool:
    present: set[int] = set()
    for start in range(0, len(ids), PAGE):
        page = ids[start : start + PAGE]
        present.update(connection.execute(_PRESENT, {"ids": page}).scalars())
    return len(present) == len(ids)


def _remove(connection: Connection, ids: Sequence[int]) -> None:
    for start in range(0, len(ids), PAGE):
        connection.execute(_DELETE, {"ids": ids[start : start + PAGE]})
