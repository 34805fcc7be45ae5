"""Publish orders are written with the state that requires them.

One relay at a time takes an order, and an order is never dropped while a task needs it.
"""

from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Connection, Delete, event

from docllm.producer.ledger import outbox
from docllm.producer.ports import Item, Order
from docllm.schemas.ledger import tables
from tests.support.ledger_database import DEAD, GROUP, RETRY, SUCCEEDED, LedgerDatabase


def place(
    ledger_db: LedgerDatabase,
    destination: str,
    *items: Item,
    grace_s: float = 0.0,
    group: str = GROUP,
) -> list[Order]:
    return ledger_db.call(outbox.place, group, destination, items, grace_s=grace_s)


def take(ledger_db: LedgerDatabase, limit: int = 20) -> list[Order]:
    return ledger_db.call(outbox.take, GROUP, limit)


def test_an_order_holds_the_items_that_were_placed(ledger_db: LedgerDatabase) -> None:
    """An order comes back from the database with its destination and its items in order."""
    items = [Item(outbox.TASK, 3, 1), Item(outbox.QUARANTINE, 1 << 40, 0), Item(outbox.TASK, 1, 7)]
    (placed,) = place(ledger_db, "retry.30s", *items)
    ledger_db.ago(tables.outbox.c.due_at, 1)

    assert take(ledger_db) == [placed]
    assert placed.items == tuple(items)
    assert placed.id > 0


def test_many_items_become_several_orders(ledger_db: LedgerDatabase) -> None:
    """No order holds more than a thousand items, and no item is left out."""
    orders = place(ledger_db, "tasks", *(Item(outbox.TASK, number, 0) for number in range(2300)))

    assert [len(order.items) for order in orders] == [1000, 1000, 300]
    assert [item.id for order in orders for item in order.items] == list(range(2300))
    assert place(ledger_db, "tasks") == []


def test_an_order_is_left_to_its_writer_for_its_grace(ledger_db: LedgerDatabase) -> None:
    """No relay takes an order before its grace of 30 s is over."""
    place(ledger_db, "tasks", Item(outbox.TASK, 1, 0), grace_s=outbox.GRACE_S)
    assert take(ledger_db) == []

    ledger_db.ago(tables.outbox.c.due_at, 1)

    assert len(take(ledger_db)) == 1


def test_an_order_that_was_taken_is_kept_from_others(ledger_db: LedgerDatabase) -> None:
    """During the relay's lease nobody else takes it; then it comes again.

    Its relay may have died.
    """
    place(ledger_db, "tasks", Item(outbox.TASK, 1, 0))
    ledger_db.ago(tables.outbox.c.due_at, 1)

    assert len(take(ledger_db)) == 1
    assert take(ledger_db) == []
    ledger_db.ago(tables.outbox.c.due_at, 1)
    assert len(take(ledger_db)) == 1


def test_the_oldest_orders_come_first(ledger_db: LedgerDatabase) -> None:
    """A relay takes a limited number of its group's orders, those that wait longest."""
    ids = [place(ledger_db, "tasks", Item(outbox.TASK, number, 0))[0].id for number in range(3)]
    place(ledger_db, "tasks", Item(outbox.TASK, 9, 0), group="other")
    for age, order_id in zip((10, 30, 20), ids, strict=True):
        ledger_db.ago(tables.outbox.c.due_at, age, order_id)

    assert [order.id for order in take(ledger_db, 2)] == [ids[1], ids[2]]
    assert [order.id for order in take(ledger_db, 2)] == [ids[0]]


def test_relays_side_by_side_take_each_order_once(ledger_db: LedgerDatabase) -> None:
    """Four relays at once take no order twice, and none leaves an order out."""
    for number in range(30):
        place(ledger_db, "tasks", Item(outbox.TASK, number, 0))
    ledger_db.ago(tables.outbox.c.due_at, 1)

    with ThreadPoolExecutor(4) as pool:
        taken = [
            order.id
            for orders in pool.map(lambda _: take(ledger_db, 5), range(8))
            for order in orders
        ]
    taken += [order.id for order in take(ledger_db, 30)]

    assert len(taken) == len(set(taken)) == 30


def test_an_order_shrinks_to_its_remaining_items(ledger_db: LedgerDatabase) -> None:
    """An order keeps its undelivered items, and is deleted when there are none."""
    (order,) = place(ledger_db, "tasks", Item(outbox.TASK, 1, 0), Item(outbox.TASK, 2, 0))
    ledger_db.call(outbox.shrink, order, [Item(outbox.TASK, 2, 0)])
    ledger_db.ago(tables.outbox.c.due_at, 1)
    assert [remaining.items for remaining in take(ledger_db)] == [(Item(outbox.TASK, 2, 0),)]

    ledger_db.call(outbox.shrink, order, [])

    assert ledger_db.count(tables.outbox) == 0


def test_shrinking_a_deleted_order_does_not_restore_it(ledger_db: LedgerDatabase) -> None:
    """Two senders of one order do no harm: the second one's report finds no order."""
    (order,) = place(ledger_db, "tasks", Item(outbox.TASK, 1, 0))
    ledger_db.call(outbox.shrink, order, [])

    ledger_db.call(outbox.shrink, order, [Item(outbox.TASK, 1, 0)])

    assert ledger_db.count(tables.outbox) == 0


def test_ids_of_orders_are_never_used_again(ledger_db: LedgerDatabase) -> None:
    """An order after a deleted one has a new id, or a late report would delete it."""
    (first,) = place(ledger_db, "tasks", Item(outbox.TASK, 1, 0))
    ledger_db.call(outbox.shrink, first, [])

    (second,) = place(ledger_db, "tasks", Item(outbox.TASK, 2, 0))

    assert second.id > first.id


def test_orders_of_final_tasks_are_dropped_at_once(ledger_db: LedgerDatabase) -> None:
    """Orders are dropped before their due time; an open task keeps its order."""
    done, waiting = ledger_db.load("done", "waiting")
    ledger_db.settled(done, SUCCEEDED)
    place(ledger_db, "tasks", Item(outbox.TASK, done, 0), grace_s=30)
    place(ledger_db, "tasks", Item(outbox.TASK, done, 0), Item(outbox.TASK, waiting, 0), grace_s=30)

    assert ledger_db.call(outbox.drop_final, GROUP) == 1
    assert [len(outbox.unpack(row.items)) for row in ledger_db.rows(tables.outbox)] == [2]


def test_orders_are_dropped_in_the_order_of_their_ids(ledger_db: LedgerDatabase) -> None:
    """Rows are locked by their id, whatever their due time is."""
    (done,) = ledger_db.load("done")
    ledger_db.settled(done, SUCCEEDED)
    ledger_db.run(lambda c: c.execute(tables.outbox.delete()))
    orders = [
        order
        for grace_s in (30, 20, 10)
        for order in place(ledger_db, "tasks", Item(outbox.TASK, done, 0), grace_s=grace_s)
    ]
    deleted: list[int] = []

    def drop(connection: Connection) -> int:
        @event.listens_for(connection, "before_execute")
        def note(_connection: object, statement: object, *arguments: object) -> None:
            if isinstance(statement, Delete):
                deleted.extend(statement.compile().params.values())

        return outbox.drop_final(connection, GROUP)

    assert ledger_db.run(drop) == 3
    assert deleted == [order.id for order in orders]


def test_a_dead_letters_order_is_never_dropped_for_its_tasks_state(
    ledger_db: LedgerDatabase,
) -> None:
    """The task is dead, and its dead letter must still reach its topic."""
    (task_id,) = ledger_db.load("a")
    ledger_db.settled(task_id, DEAD)

    assert ledger_db.call(outbox.drop_final, GROUP) == 0
    assert [row.destination for row in ledger_db.rows(tables.outbox)] == ["dlq"]


def test_a_retrys_order_is_kept(ledger_db: LedgerDatabase) -> None:
    """A task that waits for its next attempt is not final."""
    (task_id,) = ledger_db.load("a")
    ledger_db.settled(task_id, RETRY)

    assert ledger_db.call(outbox.drop_final, GROUP) == 0


def test_the_waiting_orders_are_counted(ledger_db: LedgerDatabase) -> None:
    """A relay that takes an order in vain makes it neither younger nor another one."""
    assert ledger_db.call(outbox.waiting, GROUP) == (0, 0)
    (first,) = place(ledger_db, "tasks", Item(outbox.TASK, 1, 0), grace_s=-1)
    place(ledger_db, "dlq", Item(outbox.TASK, 1, 0))
    assert ledger_db.call(outbox.waiting, GROUP) == (2, first.id)

    assert first.id in {order.id for order in ledger_db.call(outbox.take, GROUP)}

    assert ledger_db.call(outbox.waiting, GROUP) == (2, first.id)
