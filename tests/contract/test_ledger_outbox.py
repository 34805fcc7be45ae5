"""Publish orders are written with the state that requires them.

One relay at a time takes an order, and an order is never dropped while a task needs it.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from producer.ledger import outbox
from producer.ports import Order
from schemas.ledger import tables
from tests.contract.ledger_parts import DEAD, GROUP, RETRY, SUCCEEDED, Books


def place(
    books: Books, destination: str, *items: outbox.Item, grace_s: float = 0.0, group: str = GROUP
) -> list[Order]:
    return books.run(lambda c: outbox.place(c, group, destination, items, grace_s=grace_s))


def take(books: Books, limit: int = 20) -> list[Order]:
    return books.run(lambda c: outbox.take(c, GROUP, limit))


def test_an_order_is_what_was_placed(books: Books) -> None:
    """An order comes back from the database with its destination and its items in order."""
    items = [(outbox.TASK, 3, 1), (outbox.QUARANTINE, 1 << 40, 0), (outbox.TASK, 1, 7)]
    (placed,) = place(books, "retry.30s", *items)
    books.ago(tables.outbox.c.due_at, 1)

    assert take(books) == [placed]
    assert placed.items == tuple(items)
    assert placed.id > 0


def test_many_items_become_several_orders(books: Books) -> None:
    """No order holds more than a thousand items, and no item is left out."""
    orders = place(books, "tasks", *((outbox.TASK, number, 0) for number in range(2300)))

    assert [len(order.items) for order in orders] == [1000, 1000, 300]
    assert [item[1] for order in orders for item in order.items] == list(range(2300))
    assert place(books, "tasks") == []


def test_an_order_is_left_to_its_writer_for_its_grace(books: Books) -> None:
    """No relay takes an order before its grace of 30 s is over."""
    place(books, "tasks", (outbox.TASK, 1, 0), grace_s=outbox.GRACE_S)
    assert take(books) == []

    books.ago(tables.outbox.c.due_at, 1)

    assert len(take(books)) == 1


def test_an_order_that_was_taken_is_kept_from_others(books: Books) -> None:
    """During the relay's lease nobody else takes it; then it comes again.

    Its relay may have died.
    """
    place(books, "tasks", (outbox.TASK, 1, 0))
    books.ago(tables.outbox.c.due_at, 1)

    assert len(take(books)) == 1
    assert take(books) == []
    books.ago(tables.outbox.c.due_at, 1)
    assert len(take(books)) == 1


def test_the_oldest_orders_come_first(books: Books) -> None:
    """A relay takes a limited number of its group's orders, those that wait longest."""
    ids = [place(books, "tasks", (outbox.TASK, number, 0))[0].id for number in range(3)]
    place(books, "tasks", (outbox.TASK, 9, 0), group="other")
    for age, one in zip((10, 30, 20), ids, strict=True):
        books.ago(tables.outbox.c.due_at, age, one)

    assert [order.id for order in take(books, 2)] == [ids[1], ids[2]]
    assert [order.id for order in take(books, 2)] == [ids[0]]


def test_relays_side_by_side_take_each_order_once(books: Books) -> None:
    """Four relays at once take no order twice, and none leaves an order out."""
    for number in range(30):
        place(books, "tasks", (outbox.TASK, number, 0))
    books.ago(tables.outbox.c.due_at, 1)

    with ThreadPoolExecutor(4) as pool:
        taken = [
            order.id for orders in pool.map(lambda _: take(books, 5), range(8)) for order in orders
        ]
    taken += [order.id for order in take(books, 30)]

    assert len(taken) == len(set(taken)) == 30


def test_an_order_shrinks_to_what_is_left(books: Books) -> None:
    """An order keeps its undelivered items, and is deleted when there are none."""
    (order,) = place(books, "tasks", (outbox.TASK, 1, 0), (outbox.TASK, 2, 0))
    books.run(lambda c: outbox.shrink(c, order, [(outbox.TASK, 2, 0)]))
    books.ago(tables.outbox.c.due_at, 1)
    assert [one.items for one in take(books)] == [((outbox.TASK, 2, 0),)]

    books.run(lambda c: outbox.shrink(c, order, []))

    assert books.count(tables.outbox) == 0


def test_shrinking_an_order_that_is_gone_writes_none(books: Books) -> None:
    """Two senders of one order do no harm: the second one's report finds no order."""
    (order,) = place(books, "tasks", (outbox.TASK, 1, 0))
    books.run(lambda c: outbox.shrink(c, order, []))

    books.run(lambda c: outbox.shrink(c, order, [(outbox.TASK, 1, 0)]))

    assert books.count(tables.outbox) == 0


def test_ids_of_orders_are_never_used_again(books: Books) -> None:
    """An order after a deleted one has a new id, or a late report would delete it."""
    (first,) = place(books, "tasks", (outbox.TASK, 1, 0))
    books.run(lambda c: outbox.shrink(c, first, []))

    (second,) = place(books, "tasks", (outbox.TASK, 2, 0))

    assert second.id > first.id


def test_orders_of_final_tasks_are_dropped_at_once(books: Books) -> None:
    """Orders are dropped before their due time; an open task keeps its order."""
    done, waiting = books.load("done", "waiting")
    owner = books.agent().next_owner()
    books.settle(books.claimed(done, owner), owner, SUCCEEDED)
    place(books, "tasks", (outbox.TASK, done, 0), grace_s=30)
    place(books, "tasks", (outbox.TASK, done, 0), (outbox.TASK, waiting, 0), grace_s=30)

    assert books.run(lambda c: outbox.drop_settled(c, GROUP)) == 1
    assert [len(outbox.unpack(row.items)) for row in books.rows(tables.outbox)] == [2]


def test_a_dead_letters_order_is_never_dropped_for_its_tasks_state(books: Books) -> None:
    """The task is dead, and its dead letter must still reach its topic."""
    (one,) = books.load("a")
    owner = books.agent().next_owner()
    books.settle(books.claimed(one, owner), owner, DEAD)

    assert books.run(lambda c: outbox.drop_settled(c, GROUP)) == 0
    assert [row.destination for row in books.rows(tables.outbox)] == ["dlq"]


def test_a_retrys_order_is_kept(books: Books) -> None:
    """A task that waits for its next attempt is not final."""
    (one,) = books.load("a")
    owner = books.agent().next_owner()
    books.settle(books.claimed(one, owner), owner, RETRY)

    assert books.run(lambda c: outbox.drop_settled(c, GROUP)) == 0


def test_the_waiting_orders_are_counted(books: Books) -> None:
    """The orders' number is right, and how long the oldest has been due.

    A running grace is no delay.
    """
    assert books.run(lambda c: outbox.waiting(c, GROUP)) == (0, 0.0)
    place(books, "tasks", (outbox.TASK, 1, 0), grace_s=30)
    assert books.run(lambda c: outbox.waiting(c, GROUP)) == (1, 0.0)
    (late,) = place(books, "dlq", (outbox.TASK, 1, 0))
    books.ago(tables.outbox.c.due_at, 60, late.id)

    count, age_s = books.run(lambda c: outbox.waiting(c, GROUP))

    assert count == 2
    assert age_s == pytest.approx(60, abs=10)
