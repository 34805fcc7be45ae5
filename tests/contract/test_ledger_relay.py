"""The relay sends each order until it has arrived, and sends no inert record."""

from collections.abc import Callable, Sequence

import pytest

from producer.ledger import outbox
from producer.ports import Order, Refusal
from producer.relay.relay import CROWDED, SLICE, Relay
from schemas.ledger import tables
from schemas.runtime.clock import SystemClock
from schemas.task.envelope import Outgoing
from schemas.task.topics import Topics
from tests.contract.ledger_parts import DEAD, GROUP, SUCCEEDED, TOO_LONG, Books

LOST = Refusal("timed out", permanent=False)
TOO_LARGE = Refusal("message too large", permanent=True)


class FakePublisher:
    """Delivers the records that `answer` allows, and remembers every try."""

    def __init__(self, answer: Callable[[Outgoing], Refusal | None] = lambda _: None) -> None:
        self.answer = answer
        self.tried: list[list[Outgoing]] = []
        self.delivered: list[Outgoing] = []
        self.queue = 0

    async def publish(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        answers = [self.answer(record) for record in records]
        self.tried.append(list(records))
        self.delivered += [
            record for record, said in zip(records, answers, strict=True) if said is None
        ]
        return answers

    def waiting(self) -> int:
        return self.queue

    async def close(self) -> None:
        return


def relay(books: Books, publisher: FakePublisher) -> Relay:
    return Relay(
        transactions=books.transactions,
        publisher=publisher,
        topics=Topics(GROUP),
        clock=SystemClock(),
    )


def ordered(books: Books, ids: Sequence[int], destination: str = "tasks") -> list[Order]:
    """Write an order for tasks that is due."""
    orders = books.run(
        lambda c: outbox.place(c, GROUP, destination, [(outbox.TASK, one, 0) for one in ids])
    )
    books.ago(tables.outbox.c.due_at, 1, *(order.id for order in orders))
    return orders


def left(books: Books) -> list[int]:
    """Return the tasks that are still ordered."""
    return [item[1] for row in books.rows(tables.outbox) for item in outbox.unpack(row.items)]


def dead(books: Books, key: str) -> int:
    (one,) = books.load(key)
    owner = books.agent().next_owner()
    books.settle(books.claimed(one, owner), owner, DEAD)
    return one


async def test_what_arrives_is_no_longer_ordered(books: Books) -> None:
    """Delivered records leave their order; an order without items is deleted.

    One pass publishes all orders, however many an outage left.
    """
    ids = books.load("a", "b")
    for _ in range(outbox.MAX_TAKEN + 1):
        ordered(books, ids)
    publisher = FakePublisher()

    assert await relay(books, publisher).relay_once() == 2 * outbox.MAX_TAKEN + 2
    assert [record.key for record in publisher.delivered] == [b"a", b"b"] * (outbox.MAX_TAKEN + 1)
    assert books.count(tables.outbox) == 0


async def test_an_order_in_its_grace_is_left_to_its_writer(books: Books) -> None:
    """The order's writer sends it at once; the relay does not touch it before its time."""
    (one,) = books.load("a")
    orders = books.run(lambda c: outbox.place(c, GROUP, "tasks", [(outbox.TASK, one, 0)]))

    assert await relay(books, FakePublisher()).relay_once() == 0
    assert [row.id for row in books.rows(tables.outbox)] == [order.id for order in orders]


async def test_the_writer_sends_its_orders_at_once(books: Books) -> None:
    """`send` publishes without waiting for the grace, and deletes the order at the report."""
    ids = books.load("a")
    orders = books.run(
        lambda c: outbox.place(c, GROUP, "tasks", [(outbox.TASK, one, 0) for one in ids])
    )
    publisher = FakePublisher()

    await relay(books, publisher).send(orders)

    assert len(publisher.delivered) == 1
    assert books.count(tables.outbox) == 0


async def test_a_record_without_report_stays_ordered(books: Books) -> None:
    """When the report is lost the item stays, and is sent again after the relay's lease."""
    one, two = books.load("a", "b")
    ordered(books, [one, two])
    publisher = FakePublisher(lambda record: LOST if record.key == b"b" else None)
    sender = relay(books, publisher)

    assert await sender.relay_once() == 1
    assert left(books) == [two]
    assert await sender.relay_once() == 0
    books.ago(tables.outbox.c.due_at, 1)
    publisher.answer = lambda _: None
    assert await sender.relay_once() == 1
    assert left(books) == []


async def test_a_publisher_that_breaks_leaves_the_order(books: Books) -> None:
    """An error between taking and report deletes nothing."""
    ids = books.load("a")
    ordered(books, ids)

    def broken(_: Outgoing) -> Refusal | None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        await relay(books, FakePublisher(broken)).relay_once()

    assert left(books) == ids


async def test_items_that_could_do_nothing_are_dropped(books: Books) -> None:
    """Final tasks and tasks whose fence moved on leave their order without a record."""
    done, moved, waiting = books.load("done", "moved", "waiting")
    owner = books.agent().next_owner()
    books.settle(books.claimed(done, owner), owner, SUCCEEDED)
    books.set(tables.task, moved, fence=1)
    ordered(books, [done, moved, waiting])
    publisher = FakePublisher()

    assert await relay(books, publisher).relay_once() == 1
    assert [record.key for record in publisher.delivered] == [b"waiting"]
    assert left(books) == []


async def test_a_dead_letter_is_sent_although_its_task_is_final(books: Books) -> None:
    """The order of a death is kept until its dead letter has arrived."""
    dead(books, "a")
    books.ago(tables.outbox.c.due_at, 1)
    publisher = FakePublisher(lambda _: LOST)
    sender = relay(books, publisher)

    await sender.relay_once()
    await sender.drop_settled()
    assert books.count(tables.outbox) == 1
    publisher.answer = lambda _: None
    books.ago(tables.outbox.c.due_at, 1)
    await sender.relay_once()

    assert [record.topic for record in publisher.delivered] == ["group.dlq"]
    assert books.count(tables.outbox) == 0


async def test_what_is_too_large_becomes_a_pointer(books: Books) -> None:
    """A record that its topic refuses for good is replaced by its pointer record.

    The other records are not held up.
    """
    ordered(books, books.load("a", "b"))
    publisher = FakePublisher(
        lambda record: TOO_LARGE if record.key == b"a" and record.value is not None else None
    )

    await relay(books, publisher).relay_once()

    assert [(record.key, record.value is None) for record in publisher.delivered] == [
        (b"b", False),
        (b"a", True),
    ]
    assert left(books) == []
    assert books.count(tables.quarantine) == 0


async def test_what_is_refused_even_as_a_pointer_is_quarantined(books: Books) -> None:
    """The quarantine has the record then, and its order does not come back forever."""
    (one,) = books.load("a")
    ordered(books, [one])

    await relay(books, FakePublisher(lambda _: TOO_LARGE)).relay_once()

    (row,) = books.rows(tables.quarantine)
    assert (row.disposition, row.record_offset, row.error_text) == (
        "rejected",
        one,
        "message too large",
    )
    assert left(books) == []


async def test_a_pointer_whose_report_is_lost_stays_ordered(books: Books) -> None:
    """A pointer record that may not have arrived is retried, not given up."""
    (one,) = books.load("a")
    ordered(books, [one])

    await relay(
        books, FakePublisher(lambda record: LOST if record.value is None else TOO_LARGE)
    ).relay_once()

    assert left(books) == [one]
    assert books.count(tables.quarantine) == 0


async def test_while_nothing_arrives_one_slice_of_one_order_is_tried(books: Books) -> None:
    """A failing bus is probed with one slice; when that arrives, everything follows."""
    ids = books.load(*(f"task {number}" for number in range(3 * SLICE)))
    ordered(books, ids)
    ordered(books, ids[:10])
    publisher = FakePublisher(lambda _: LOST)
    sender = relay(books, publisher)

    for _ in range(3):
        assert await sender.relay_once() == 0
        books.ago(tables.outbox.c.due_at, 1)
    assert len(publisher.tried) == 3
    assert all(len(records) <= SLICE for records in publisher.tried)
    assert sender.failing
    publisher.answer = lambda _: None
    for _ in range(3):
        await sender.relay_once()
        books.ago(tables.outbox.c.due_at, 1)

    assert not sender.failing
    assert {record.key for record in publisher.delivered} == {
        f"task {number}".encode() for number in range(3 * SLICE)
    }
    assert left(books) == []


async def test_a_dead_destination_holds_up_no_other(books: Books) -> None:
    """Tasks are published, however many dead letters wait for a failing topic.

    This holds for old and for new orders.
    """
    old, new, *ids = books.load(
        "old", "new", *(f"dead {number}" for number in range(outbox.MAX_TAKEN + 2))
    )
    for one in ids:
        owner = books.agent().next_owner()
        books.settle(books.claimed(one, owner), owner, TOO_LONG)
    books.ago(tables.outbox.c.due_at, 60)
    publisher = FakePublisher(lambda record: LOST if record.topic.endswith("dlq") else None)
    sender = relay(books, publisher)

    assert await sender.relay_once() == 0
    for _ in range(2 * outbox.MAX_TAKEN):
        ordered(books, [old])
    assert await sender.relay_once() == 2 * outbox.MAX_TAKEN
    await sender.send(ordered(books, [new]))

    assert sender.failing == {"dlq"}
    assert [record.key for record in publisher.delivered] == [b"old"] * (2 * outbox.MAX_TAKEN) + [
        b"new"
    ]
    assert len(publisher.tried) == 1 + 2 * outbox.MAX_TAKEN + 1 + 1, (
        "the topic that takes nothing is asked once a round"
    )
    publisher.answer = lambda _: None
    for _ in range(4):
        books.ago(tables.outbox.c.due_at, 1)
        await sender.relay_once()
    assert not sender.failing
    assert left(books) == []


async def test_an_order_with_nothing_to_send_proves_nothing(books: Books) -> None:
    """While the bus fails, dropping an order of final tasks does not count as a delivery."""
    waiting, done = books.load("waiting", "done")
    owner = books.agent().next_owner()
    books.settle(books.claimed(done, owner), owner, SUCCEEDED)
    ordered(books, [waiting])
    sender = relay(books, FakePublisher(lambda _: LOST))
    await sender.relay_once()
    ordered(books, [done])

    await sender.relay_once()

    assert sender.failing
    assert left(books) == [waiting]


async def test_a_crowded_queue_or_a_failing_bus_leaves_new_orders_to_the_relay(
    books: Books,
) -> None:
    """`send` does not add to the queue then; the order stays for later."""
    ids = books.load("a")
    orders = ordered(books, ids)
    publisher = FakePublisher(lambda _: LOST)
    publisher.queue = CROWDED + 1
    sender = relay(books, publisher)

    await sender.send(orders)
    assert publisher.tried == []

    publisher.queue = 0
    await sender.send(orders)
    await sender.send(orders)
    assert len(publisher.tried) == 1
    assert left(books) == ids


async def test_two_relays_send_an_order_once(books: Books) -> None:
    """The relay's lease keeps the second relay away while the first may still be sending."""
    ordered(books, books.load("a"))
    first, second = FakePublisher(lambda _: LOST), FakePublisher()

    await relay(books, first).relay_once()

    assert await relay(books, second).relay_once() == 0


async def test_a_missing_task_ends_its_order(books: Books) -> None:
    """An order for a missing row is dropped; it was archived or lost by a restored database."""
    ordered(books, [999_999])
    sender = relay(books, FakePublisher())

    assert await sender.relay_once() == 0
    assert left(books) == []
    assert not sender.failing
