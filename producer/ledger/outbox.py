"""Publish orders in the database.

Every record that must reach Kafka is ordered in the transaction that makes it true. This module
writes, takes and shrinks orders. In `producer/publishing`, `record_builder` turns their items into
records, and `relay` sends them.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, case, delete, func, insert, select, update

from docllm.producer.ports import Item, Order
from docllm.schemas.ledger.sql import utc_after, utc_now
from docllm.schemas.ledger.tables import outbox, task
from docllm.schemas.task.record.lanes import Lane, known_lane
from docllm.schemas.task.record.topics import RESULTS
from docllm.schemas.task.states import FINAL

# The kinds of items, as they are stored.
TASK = 0
QUARANTINE = 1

# The carrier of a task whose record goes to its lane.
LANE_CARRIER = case(
    *((task.c.lane == int(lane), lane.destination) for lane in Lane if lane is not Lane.NORMAL),
    else_=Lane.NORMAL.destination,
)
MAX_ITEMS = 1000
# A writer sends its order within the grace, a relay within its lease. On a slow bus either may take
# longer, and then another relay sends the same records too. Such duplicates are harmless: fence and
# state decide at the claim.
GRACE_S = 30.0
RELAY_LEASE_S = 60.0
_PACKED = struct.Struct(">BqI")
MAX_TAKEN = 20  # orders at once
_DUE = (  # Every agent runs this query every two seconds, so it is built once.
    select(outbox)
    .where(outbox.c.group_name == bindparam("of_group"), outbox.c.due_at < utc_now())
    .order_by(outbox.c.due_at)
    .with_for_update(skip_locked=True)
)
_TAKE = _DUE.where(outbox.c.destination.not_in(bindparam("without", expanding=True))).limit(
    bindparam("most")
)
_TAKE_ONE = _DUE.where(outbox.c.destination == bindparam("destination")).limit(1)


def pack(items: Iterable[Item]) -> bytes:
    """Return the items as the database stores them."""
    return b"".join(_PACKED.pack(*item) for item in items)


def unpack(blob: bytes) -> tuple[Item, ...]:
    """Return the items of a stored order."""
    return tuple(map(Item._make, _PACKED.iter_unpack(blob)))


def place(
    connection: Connection,
    group: str,
    destination: str,
    items: Sequence[Item],
    *,
    grace_s: float = GRACE_S,
) -> list[Order]:
    """Write orders for these items and return them.

    The relay takes the orders after `grace_s`; until then they are left to the process that wrote
    them.
    """
    orders = []
    for start in range(0, len(items), MAX_ITEMS):
        part = tuple(items[start : start + MAX_ITEMS])
        row = {
            "group_name": group,
            "destination": destination,
            "due_at": utc_after(grace_s),
            "items": pack(part),
        }
        key = connection.execute(insert(outbox).values(**row)).inserted_primary_key
        orders.append(Order(key[0] if key else 0, group, destination, part))
    return orders


def place_in_lanes(
    connection: Connection,
    group: str,
    rows: Iterable[Any],
    *,
    fences_on: int = 0,
    grace_s: float = GRACE_S,
) -> list[Order]:
    """Write orders for the records of these tasks, in their lanes, and return the orders.

    The rows have `id`, `fence` and `lane`. A record's fence is its row's plus `fences_on`. The
    caller sets `carrier` to `LANE_CARRIER` in the same statement that lets the tasks wait.
    """
    items: dict[str, list[Item]] = {}
    for row in rows:
        of_lane = items.setdefault(known_lane(row.lane).destination, [])
        of_lane.append(Item(TASK, row.id, row.fence + fences_on))
    return [
        order
        for destination, of_lane in sorted(items.items())
        for order in place(connection, group, destination, of_lane, grace_s=grace_s)
    ]


def take(
    connection: Connection, group: str, limit: int = MAX_TAKEN, *, without: Iterable[str] = ()
) -> list[Order]:
    """Return orders that outlived their grace, leaving out the destinations in `without`.

    The relay's lease keeps other relays away from these orders.
    """
    return _lease(
        connection,
        connection.execute(_TAKE, {"of_group": group, "most": limit, "without": sorted(without)}),
    )


def take_one(connection: Connection, group: str, destination: str) -> list[Order]:
    """Return the oldest order for one destination, or an empty list, as `take` does."""
    return _lease(
        connection, connection.execute(_TAKE_ONE, {"of_group": group, "destination": destination})
    )


def _lease(connection: Connection, rows: Iterable[Row[Any]]) -> list[Order]:
    orders = [Order(row.id, row.group_name, row.destination, unpack(row.items)) for row in rows]
    if orders:
        ids = sorted(order.id for order in orders)
        connection.execute(
            update(outbox).where(outbox.c.id.in_(ids)).values(due_at=utc_after(RELAY_LEASE_S))
        )
    return orders


def shrink(connection: Connection, order: Order, unsent: Sequence[Item]) -> None:
    """Rewrite an order to the items that are left, or delete it if none are."""
    if unsent:
        connection.execute(update(outbox).where(outbox.c.id == order.id).values(items=pack(unsent)))
    else:
        connection.execute(delete(outbox).where(outbox.c.id == order.id))


def shrink_each(
    connection: Connection, orders: Sequence[Order], unsent: Sequence[Sequence[Item]]
) -> None:
    """Shrink each of these orders to its items that are left."""
    for order, left in zip(orders, unsent, strict=True):
        shrink(connection, order, left)


def ordered(connection: Connection, group: str, *destinations: str) -> set[int]:
    """Return the ids of tasks in a group's orders for some destinations.

    The records of these tasks may not be on the topics yet.
    """
    query = select(outbox.c["items"]).where(
        outbox.c.group_name == group, outbox.c.destination.in_(destinations)
    )
    return {
        item.id
        for blob in connection.execute(query).scalars()
        for item in unpack(blob)
        if item.kind == TASK
    }


def drop_final(connection: Connection, group: str, limit: int = 20) -> int:
    """Delete the oldest orders whose tasks are all final; return how many.

    It does not wait for their due time. The order of a dead letter or of a result is never dropped
    because of its task's state.
    """
    query = (
        select(outbox)
        .where(outbox.c.group_name == group, outbox.c.destination.not_in(("dlq", RESULTS)))
        .order_by(outbox.c.due_at)
        .limit(limit)
    )
    rows = connection.execute(query).all()
    # Rows are locked by their id, as everywhere, so that two programs never deadlock here.
    settled = sorted(row.id for row in rows if _all_final(connection, row.items))
    return sum(
        connection.execute(delete(outbox).where(outbox.c.id == order_id)).rowcount
        for order_id in settled
    )


def _all_final(connection: Connection, items: bytes) -> bool:
    ids = sorted(item.id for item in unpack(items))
    still_open = select(task.c.id).where(task.c.id.in_(ids), task.c.status.not_in(FINAL)).limit(1)
    return connection.execute(still_open).first() is None


def waiting(connection: Connection, group: str) -> Any:
    """Return how many `orders` a group has, and the `oldest_id` of them, 0 if there is none.

    No id is used twice. `due_at` does not show how late an order is, because each relay that takes
    the order sets a new `due_at`.
    """
    oldest = func.coalesce(func.min(outbox.c.id), 0).label("oldest_id")
    query = select(func.count().label("orders"), oldest).where(outbox.c.group_name == group)
    return connection.execute(query).one()
