"""Makes the follow-ups of tasks that succeed, in the transaction of their settle.

Only an accepted success makes tasks, so they are made exactly as often as their parent succeeds. In
a cancelled batch no task is made: the parent is cancelled too, and runs again if the batch is
replayed. If the batch already has the follow-up's key, equal content means that the task exists
already; different content makes the parent die.

Rows are locked in this order: `batch`, `task`. A cancel waits for this transaction and finds its
rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count

from sqlalchemy import Connection, bindparam, delete, select

from docllm.agent.ports import Settlement
from docllm.agent.ports.outcome import Cancelled, Dead, Failure, FollowUp, Succeeded
from docllm.producer.ledger import new_tasks
from docllm.producer.ledger.new_tasks import NewTask
from docllm.producer.ports import Order
from docllm.schemas.ledger.bulk import insert_rows
from docllm.schemas.ledger.tables import batch, task
from docllm.schemas.ledger.tables import follow_up as child_row
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.record.envelope import digest
from docllm.schemas.text.wording import one_line

PAGE = 500  # keys in one statement

_LOCK = (
    select(batch.c.id, batch.c.cancelled_at)
    .where(batch.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(batch.c.id)
    .with_for_update(read=True)
)
_DIGESTS = select(task.c.task_key, task.c.digest).where(
    task.c.batch_id == bindparam("batch"), task.c.task_key.in_(bindparam("keys", expanding=True))
)
_PRESENT = select(task.c.id).where(task.c.id.in_(bindparam("ids", expanding=True)))
_DELETE = delete(task).where(task.c.id.in_(bindparam("ids", expanding=True)))

TaskKey = tuple[int, bytes]  # batch, key


@dataclass(slots=True)
class NewFollowUps:
    """The tasks that a settle makes, by batch and id."""

    tasks: dict[int, dict[int, NewTask]] = field(default_factory=dict)

    @property
    def ids(self) -> list[int]:
        """The ids of all tasks."""
        return sorted(task_id for batch_tasks in self.tasks.values() for task_id in batch_tasks)


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
        stored_digests = _stored_digests(connection, open_ones)
        decided, new_follow_ups = _decide(open_ones, stored_digests, first_id)
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
    insert_rows(connection, child_row, links)
    return [
        order
        for batch_id, tasks in sorted(new_follow_ups.tasks.items())
        for order in new_tasks.complete(connection, group, batch_id, tasks)
    ]


def _in_open_batch(settlement: Settlement, cancelled: set[int]) -> Settlement:
    if ordered(settlement) and settlement.row.batch_id in cancelled:
        return replace(settlement, outcome=Cancelled(settlement.outcome.spent))
    return settlement


def _stored_digests(
    connection: Connection, settlements: Sequence[Settlement]
) -> dict[TaskKey, bytes]:
    """Return the digests of tasks that the batches have under the follow-ups' keys."""
    keys: dict[int, set[bytes]] = {}
    for settlement in settlements:
        batch_keys = keys.setdefault(settlement.row.batch_id, set())
        batch_keys.update(follow_up.key.encode() for follow_up in ordered(settlement))
    digests: dict[TaskKey, bytes] = {}
    for batch_id, page in _pages(keys):
        rows = connection.execute(_DIGESTS, {"batch": batch_id, "keys": page})
        digests |= {(batch_id, bytes(row.task_key)): bytes(row.digest) for row in rows}
    return digests


def _pages(keys: Mapping[int, set[bytes]]) -> Iterator[tuple[int, list[bytes]]]:
    for batch_id, batch_keys in sorted(keys.items()):
        in_order = sorted(batch_keys)
        for start in range(0, len(in_order), PAGE):
            yield batch_id, in_order[start : start + PAGE]


def _decide(
    settlements: Sequence[Settlement], stored_digests: Mapping[TaskKey, bytes], first_id: int
) -> tuple[list[Settlement], NewFollowUps]:
    """Return the settlements as they are settled, and the tasks to make.

    A task that two parents order alike is made once, for the first of them.
    """
    digests, new_follow_ups, ids = dict(stored_digests), NewFollowUps(), count(first_id)
    decided = []
    for settlement in settlements:
        tasks = [_task(settlement, follow_up) for follow_up in ordered(settlement)]
        batch_id = settlement.row.batch_id
        clash = next(
            (new for new in tasks if digests.get((batch_id, new.key), new.digest) != new.digest),
            None,
        )
        if clash is not None:
            decided.append(_clashed(settlement, clash.key))
            continue
        decided.append(settlement)
        for new in tasks:
            if (batch_id, new.key) not in digests:
                digests[batch_id, new.key] = new.digest
                new_follow_ups.tasks.setdefault(batch_id, {})[next(ids)] = new
    return decided, new_follow_ups


def _task(settlement: Settlement, follow_up: FollowUp) -> NewTask:
    key = follow_up.key.encode()
    return NewTask(
        key=key,
        digest=digest(key, follow_up.value),
        value=follow_up.value,
        type=follow_up.type,
        tenant=follow_up.tenant,
        max_attempts=follow_up.max_attempts,
        expires_at=_stored(follow_up.deadline),
        not_before=_stored(follow_up.not_before),
        raw_key=key,
        lane=follow_up.lane,
        parent_id=settlement.row.task_id,
        depth=settlement.row.depth + 1,
    )


def _stored(time: datetime | None) -> datetime | None:
    return time and time.astimezone(UTC).replace(tzinfo=None)


def _clashed(settlement: Settlement, key: bytes) -> Settlement:
    text = one_line(
        f"its follow-up {key.decode()!r} is in batch {settlement.row.batch!r} already with other "
        "content; give each follow-up an id of its own, for example one that begins with its "
        "parent's id"
    )
    failure = Failure(ErrorClass.FOLLOW_CLASH, text)
    return replace(settlement, outcome=Dead(failure, settlement.outcome.spent))


def _all_present(connection: Connection, ids: Sequence[int]) -> bool:
    return len(_present(connection, ids)) == len(ids)


def _present(connection: Connection, ids: Sequence[int]) -> set[int]:
    present: set[int] = set()
    for start in range(0, len(ids), PAGE):
        page = ids[start : start + PAGE]
        present.update(connection.execute(_PRESENT, {"ids": page}).scalars())
    return present


def _remove(connection: Connection, ids: Sequence[int]) -> None:
    for start in range(0, len(ids), PAGE):
        connection.execute(_DELETE, {"ids": ids[start : start + PAGE]})
