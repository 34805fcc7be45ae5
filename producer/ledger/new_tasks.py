"""Writes the rows of new tasks: state, input, count, and the orders for their first records.

Loads, the inbox and follow-ups all create their tasks here.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from docllm.producer.ledger import outbox, tally, waiting_rows
from docllm.producer.ledger.joins import waiting_for
from docllm.producer.ledger.waiting_rows import WaitingFor
from docllm.producer.ports import Item, Order
from docllm.schemas.ledger.bulk import insert_rows
from docllm.schemas.ledger.sql import NEVER_TIME
from docllm.schemas.ledger.tables import task, task_input
from docllm.schemas.task.failures import FOLLOW_UP, TallyOutcome
from docllm.schemas.task.joins import JoinRole
from docllm.schemas.task.record.hints import PLAIN, Hints
from docllm.schemas.task.record.lanes import Lane
from docllm.schemas.task.states import Status
from docllm.schemas.task.waits import WaitReason


@dataclass(slots=True)
class NewTask:
    """A task to accept.

    `raw_key` is the key of the record that brought the task, `headers` that record's headers as
    JSON. `parent_id` is the task that ordered it, 0 for none, and `depth` how many ancestors it
    has. `names_tenant` and `names_priority` say whether its line does; if not, its batch may.
    `not_before` is in UTC without a zone, as `expires_at`. A join has none.
    `hints` are for the record of a task that is published from memory.
    """

    key: bytes
    digest: bytes
    value: bytes
    type: str
    tenant: str
    max_attempts: int
    expires_at: datetime | None
    raw_key: bytes | None
    headers: bytes | None = None
    lane: Lane = Lane.NORMAL
    parent_id: int = 0
    depth: int = 0
    names_tenant: bool = True
    names_priority: bool = True
    not_before: datetime | None = None
    hints: Hints = PLAIN
    join_role: JoinRole = JoinRole.NONE


def insert(connection: Connection, batch_id: int, tasks: Mapping[int, NewTask]) -> None:
    """Write the rows of tasks, by id; a task whose key the batch has already is left out."""
    by_key = sorted(tasks.items(), key=lambda item: item[1].key)
    rows = [
        _row(batch_id, *item)
        for item in by_key
        if item[1].not_before is None and not item[1].join_role
    ]
    insert_rows(connection, task, rows, keep=True)
    if len(rows) == len(tasks):
        return
    others: defaultdict[frozenset[str], list[dict[str, Any]]] = defaultdict(list)
    for task_id, new in by_key:
        if more := _more_columns(new):
            others[frozenset(more)].append(_row(batch_id, task_id, new) | more)
    for rows in others.values():
        insert_rows(connection, task, rows, keep=True)


def complete(
    connection: Connection, group: str, batch_id: int, tasks: Mapping[int, NewTask]
) -> list[Order]:
    """Write what belongs to inserted tasks, and return the orders for their first records."""
    insert_rows(connection, task_input, [_input(*item) for item in tasks.items()])
    counts = Counter(
        [(new.type, new.tenant, FOLLOW_UP if new.parent_id else "") for new in tasks.values()]
    )
    tally.write(
        connection,
        [
            tally.TallyChange(
                batch_id=batch_id,
                type=task_type,
                route="",
                state=Status.PENDING,
                outcome=TallyOutcome.LOADED,
                disposition=disposition,
                tenant=tenant,
                delta=count,
            )
            for (task_type, tenant, disposition), count in counts.items()
        ],
    )
    waits = {
        task_id: WaitingFor(WaitReason.TIME) if new.not_before else waiting_for(new.parent_id)
        for task_id, new in tasks.items()
        if new.not_before is not None or new.join_role > JoinRole.SIBLING
    }
    if waits:
        waiting_rows.put(connection, group, list(waits.items()))
    return _order(connection, group, tasks, waits)


def _order(
    connection: Connection, group: str, tasks: Mapping[int, NewTask], waits: Collection[int]
) -> list[Order]:
    """Order the first records of tasks that do not wait, in their lanes, by their ids."""
    items: dict[Lane, list[Item]] = {lane: [] for lane in Lane}
    for task_id, new in tasks.items():
        if task_id not in waits:
            items[new.lane].append(Item(outbox.TASK, task_id, 0))
    return [
        order
        for lane, of_lane in items.items()
        for order in outbox.place(connection, group, lane.destination, of_lane)
    ]


def _row(batch_id: int, task_id: int, new: NewTask) -> dict[str, Any]:
    return {
        "id": task_id,
        "batch_id": batch_id,
        "task_key": new.key,
        "digest": new.digest,
        "type": new.type,
        "tenant": new.tenant,
        "max_attempts": new.max_attempts,
        "carrier": new.lane.destination,
        "lane": int(new.lane),
        "expires_at": new.expires_at or NEVER_TIME,
        "parent_id": new.parent_id,
        "depth": new.depth,
    }


def _more_columns(new: NewTask) -> dict[str, Any]:
    """Return what the row of a task has that waits, or for which a join waits."""
    more: dict[str, Any] = {}
    if new.join_role:
        more["join_role"] = int(new.join_role)
    if new.not_before is not None:
        more["due_at"] = new.not_before
    elif new.join_role.is_join:
        more["due_at"] = NEVER_TIME
    return more


def _input(task_id: int, new: NewTask) -> dict[str, Any]:
    return {"task_id": task_id, "raw_key": new.raw_key, "headers": new.headers, "body": new.value}
