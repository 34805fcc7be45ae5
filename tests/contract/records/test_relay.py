"""The relay sends each order until it has arrived, and sends no inert record."""

from collections.abc import Callable, Sequence

import pytest
from sqlalchemy import delete, update

from docllm.agent.ledger.recovery import reaping
from docllm.producer.ledger import outbox
from docllm.producer.ledger.outbox import TASK
from docllm.producer.ledger.quarantine import headers_blob
from docllm.producer.ports import Item, Order, Refusal
from docllm.producer.publishing.relay import CROWDED, SLICE, Relay
from docllm.producer.tracing.publications import PublicationTraces
from docllm.schemas.ledger import tables
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.task.record.envelope import Outgoing, decode
from docllm.schemas.task.record.topics import Topics
from docllm.schemas.task.record.trace import attempt_span, trace_of
from tests.support.ledger_database import (
    DEAD,
    GROUP,
    RETRY,
    SUCCEEDED,
    TOO_LONG,
    LedgerDatabase,
)
from tests.support.spans import KeptSpans

FOREIGN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
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
            record for record, answer in zip(records, answers, strict=True) if answer is None
        ]
        return answers

    def waiting(self) -> int:
        return self.queue

    async def close(self) -> None:
        return


def relay(
    ledger_db: LedgerDatabase, publisher: FakePublisher, traces: PublicationTraces | None = None
) -> Relay:
    return Relay(
        transactions=ledger_db.transactions,
        publisher=publisher,
        topics=Topics(GROUP),
        clock=SystemClock(),
        traces=traces,
    )


def ordered(
    ledger_db: LedgerDatabase, ids: Sequence[int], destination: str = "tasks"
) -> list[Order]:
    """Write an order for tasks that is due."""
    orders = ledger_db.call(
        outbox.place, GROUP, destination, [Item(TASK, task_id, 0) for task_id in ids]
    )
    ledger_db.ago(tables.outbox.c.due_at, 1, *(order.id for order in orders))
    return orders


def left(ledger_db: LedgerDatabase) -> list[int]:
    """Return the tasks that are still ordered."""
    return [item.id for row in ledger_db.rows(tables.outbox) for item in outbox.unpack(row.items)]


def dead(ledger_db: LedgerDatabase, key: str) -> int:
    (task_id,) = ledger_db.load(key)
    ledger_db.settled(task_id, DEAD)
    return task_id


async def test_delivered_records_leave_their_order(ledger_db: LedgerDatabase) -> None:
    """Delivered records leave their order; an order without items is deleted.

    One pass publishes all orders, however many an outage left.
    """
    ids = ledger_db.load("a", "b")
    for _ in range(outbox.MAX_TAKEN + 1):
        ordered(ledger_db, ids)
    publisher = FakePublisher()

    assert await relay(ledger_db, publisher).relay_once() == 2 * outbox.MAX_TAKEN + 2
    assert [record.key for record in publisher.delivered] == [b"a", b"b"] * (outbox.MAX_TAKEN + 1)
    assert ledger_db.count(tables.outbox) == 0


async def test_a_record_names_its_trace_and_what_came_before(ledger_db: LedgerDatabase) -> None:
    """A retry follows the attempt that failed, and is told of; a first record is not."""
    failed, fresh, killed = ledger_db.load("a", "b", "c")
    owner, lost = ledger_db.agent().next_owner(), ledger_db.lost_agent().next_owner()
    ledger_db.settle(ledger_db.claimed(failed, owner), owner, RETRY)
    ledger_db.claimed(killed, lost)
    ledger_db.call(reaping.reset_orphans, GROUP, [killed])
    ledger_db.run(
        lambda c: c.execute(
            update(tables.task_input)
            .where(tables.task_input.c.task_id == fresh)
            .values(headers=headers_blob([("traceparent", FOREIGN.encode())]))
        )
    )
    ledger_db.run(lambda c: c.execute(delete(tables.outbox)))
    for task_id, fence in ((failed, 1), (fresh, 0), (killed, 0)):
        item = Item(TASK, task_id, fence)
        (order,) = ledger_db.call(outbox.place, GROUP, "tasks", [item])
        ledger_db.ago(tables.outbox.c.due_at, 1, order.id)
    publisher = FakePublisher()
    traces = PublicationTraces(spans=KeptSpans(), ledger="ledger", ratio=0.0, system="kafka")

    await relay(ledger_db, publisher, traces).relay_once()

    found = {record.key: decode(record.headers).trace for record in publisher.delivered}
    published = [found[key].publication for key in (b"a", b"b", b"c")]
    assert [span and span.sampled for span in published] == [True, False, True]
    assert [span and span.trace for span in published] == [
        trace_of("ledger", task_id) for task_id in (failed, fresh, killed)
    ]
    assert [found[key].after for key in (b"a", b"b", b"c")] == [
        attempt_span(failed, owner),
        None,
        attempt_span(killed, lost),
    ]
    link = found[b"b"].link
    assert link is not None
    assert link.traceparent == FOREIGN


async def test_an_order_in_its_grace_is_left_to_its_writer(ledger_db: LedgerDatabase) -> None:
    """The order's writer sends it at once; the relay does not touch it before its time."""
    (task_id,) = ledger_db.load("a")
    orders = ledger_db.call(outbox.place, GROUP, "tasks", [Item(TASK, task_id, 0)])

    assert await relay(ledger_db, FakePublisher()).relay_once() == 0
    assert [row.id for row in ledger_db.rows(tables.outbox)] == [order.id for order in orders]


async def test_the_writer_sends_its_orders_at_once(ledger_db: LedgerDatabase) -> None:
    """`send` publishes without waiting for the grace, and deletes the order at the report."""
    ids = ledger_db.load("a")
    orders = ledger_db.call(
        outbox.place, GROUP, "tasks", [Item(TASK, task_id, 0) for task_id in ids]
    )
    publisher = FakePublisher()

    await relay(ledger_db, publisher).send(orders)

    assert len(publisher.delivered) == 1
    assert ledger_db.count(tables.outbox) == 0


async def test_a_record_without_report_stays_ordered(ledger_db: LedgerDatabase) -> None:
    """When the report is lost the item stays, and is sent again after the relay's lease."""
    first, second = ledger_db.load("a", "b")
    ordered(ledger_db, [first, second])
    publisher = FakePublisher(lambda record: LOST if record.key == b"b" else None)
    sender = relay(ledger_db, publisher)

    assert await sender.relay_once() == 1
    assert left(ledger_db) == [second]
    assert await sender.relay_once() == 0
    ledger_db.ago(tables.outbox.c.due_at, 1)
    publisher.answer = lambda _: None
    assert await sender.relay_once() == 1
    assert left(ledger_db) == []


async def test_a_publisher_that_breaks_leaves_the_order(ledger_db: LedgerDatabase) -> None:
    """An error between taking and report deletes nothing."""
    ids = ledger_db.load("a")
    ordered(ledger_db, ids)

    def broken(_: Outgoing) -> Refusal | None:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        await relay(ledger_db, FakePublisher(broken)).relay_once()

    assert left(ledger_db) == ids


async def test_items_that_could_do_nothing_are_dropped(ledger_db: LedgerDatabase) -> None:
    """Final tasks and tasks whose fence moved on leave their order without a record."""
    done, moved, waiting = ledger_db.load("done", "moved", "waiting")
    ledger_db.settled(done, SUCCEEDED)
    ledger_db.set(tables.task, moved, fence=1)
    ordered(ledger_db, [done, moved, waiting])
    publisher = FakePublisher()

    assert await relay(ledger_db, publisher).relay_once() == 1
    assert [record.key for record in publisher.delivered] == [b"waiting"]
    assert left(ledger_db) == []


async def test_a_dead_letter_is_sent_although_its_task_is_final(ledger_db: LedgerDatabase) -> None:
    """The order of a death is kept until its dead letter has arrived."""
    dead(ledger_db, "a")
    ledger_db.ago(tables.outbox.c.due_at, 1)
    publisher = FakePublisher(lambda _: LOST)
    sender = relay(ledger_db, publisher)

    await sender.relay_once()
    await sender.drop_final()
    assert ledger_db.count(tables.outbox) == 1
    publisher.answer = lambda _: None
    ledger_db.ago(tables.outbox.c.due_at, 1)
    await sender.relay_once()

    assert [record.topic for record in publisher.delivered] == ["group.dlq"]
    assert ledger_db.count(tables.outbox) == 0


async def test_a_record_that_is_too_large_becomes_a_pointer(ledger_db: LedgerDatabase) -> None:
    """A record that its topic refuses for good is replaced by its pointer record.

    The other records are not held up.
    """
    ordered(ledger_db, ledger_db.load("a", "b"))
    publisher = FakePublisher(
        lambda record: TOO_LARGE if record.key == b"a" and record.value is not None else None
    )

    await relay(ledger_db, publisher).relay_once()

    assert [(record.key, record.value is None) for record in publisher.delivered] == [
        (b"b", False),
        (b"a", True),
    ]
    assert left(ledger_db) == []
    assert ledger_db.count(tables.quarantine) == 0


async def test_a_record_that_is_refused_even_as_a_pointer_is_quarantined(
    ledger_db: LedgerDatabase,
) -> None:
    """The quarantine has the record then, and its order does not come back forever."""
    (task_id,) = ledger_db.load("a")
    ordered(ledger_db, [task_id])

    await relay(ledger_db, FakePublisher(lambda _: TOO_LARGE)).relay_once()

    (row,) = ledger_db.rows(tables.quarantine)
    assert (row.disposition, row.record_offset, row.error_text) == (
        "rejected",
        task_id,
        "message too large",
    )
    assert left(ledger_db) == []


async def test_a_pointer_whose_report_is_lost_stays_ordered(ledger_db: LedgerDatabase) -> None:
    """A pointer record that may not have arrived is retried, not given up."""
    (task_id,) = ledger_db.load("a")
    ordered(ledger_db, [task_id])

    await relay(
        ledger_db, FakePublisher(lambda record: LOST if record.value is None else TOO_LARGE)
    ).relay_once()

    assert left(ledger_db) == [task_id]
    assert ledger_db.count(tables.quarantine) == 0


async def test_while_nothing_arrives_one_slice_of_one_order_is_tried(
    ledger_db: LedgerDatabase,
) -> None:
    """A failing bus is probed with one slice; when that arrives, everything follows."""
    ids = ledger_db.load(*(f"task {number}" for number in range(3 * SLICE)))
    ordered(ledger_db, ids)
    ordered(ledger_db, ids[:10])
    publisher = FakePublisher(lambda _: LOST)
    sender = relay(ledger_db, publisher)

    for _ in range(3):
        assert await sender.relay_once() == 0
        ledger_db.ago(tables.outbox.c.due_at, 1)
    assert len(publisher.tried) == 3
    assert all(len(records) <= SLICE for records in publisher.tried)
    assert sender.failing
    publisher.answer = lambda _: None
    for _ in range(3):
        await sender.relay_once()
        ledger_db.ago(tables.outbox.c.due_at, 1)

    assert not sender.failing
    assert {record.key for record in publisher.delivered} == {
        f"task {number}".encode() for number in range(3 * SLICE)
    }
    assert left(ledger_db) == []


async def test_a_failing_destination_delays_no_other(ledger_db: LedgerDatabase) -> None:
    """Tasks are published, however many dead letters wait for a failing topic.

    This holds for old and for new orders.
    """
    old, new, *ids = ledger_db.load(
        "old", "new", *(f"dead {number}" for number in range(outbox.MAX_TAKEN + 2))
    )
    for task_id in ids:
        ledger_db.settled(task_id, TOO_LONG)
    ledger_db.ago(tables.outbox.c.due_at, 60)
    publisher = FakePublisher(lambda record: LOST if record.topic.endswith("dlq") else None)
    sender = relay(ledger_db, publisher)

    assert await sender.relay_once() == 0
    for _ in range(2 * outbox.MAX_TAKEN):
        ordered(ledger_db, [old])
    assert await sender.relay_once() == 2 * outbox.MAX_TAKEN
    await sender.send(ordered(ledger_db, [new]))

    assert sender.failing == {"dlq"}
    assert [record.key for record in publisher.delivered] == [b"old"] * (2 * outbox.MAX_TAKEN) + [
        b"new"
    ]
    assert len(publisher.tried) == 1 + 2 * outbox.MAX_TAKEN + 1 + 1, (
        "the topic that takes nothing is asked once a round"
    )
    publisher.answer = lambda _: None
    for _ in range(4):
        ledger_db.ago(tables.outbox.c.due_at, 1)
        await sender.relay_once()
    assert not sender.failing
    assert left(ledger_db) == []


async def test_an_order_with_nothing_to_send_proves_nothing(ledger_db: LedgerDatabase) -> None:
    """While the bus fails, dropping an order of final tasks does not count as a delivery."""
    waiting, done = ledger_db.load("waiting", "done")
    ledger_db.settled(done, SUCCEEDED)
    ordered(ledger_db, [waiting])
    sender = relay(ledger_db, FakePublisher(lambda _: LOST))
    await sender.relay_once()
    ordered(ledger_db, [done])

    await sender.relay_once()

    assert sender.failing
    assert left(ledger_db) == [waiting]


async def test_a_crowded_queue_or_a_failing_bus_leaves_new_orders_to_the_relay(
    ledger_db: LedgerDatabase,
) -> None:
    """`send` does not add to the queue then; the order stays for later."""
    ids = ledger_db.load("a")
    orders = ordered(ledger_db, ids)
    publisher = FakePublisher(lambda _: LOST)
    publisher.queue = CROWDED + 1
    sender = relay(ledger_db, publisher)

    await sender.send(orders)
    assert publisher.tried == []

    publisher.queue = 0
    await sender.send(orders)
    await sender.send(orders)
    assert len(publisher.tried) == 1
    assert left(ledger_db) == ids


async def test_two_relays_send_an_order_once(ledger_db: LedgerDatabase) -> None:
    """The relay's lease keeps the second relay away while the first may still be sending."""
    ordered(ledger_db, ledger_db.load("a"))
    first, second = FakePublisher(lambda _: LOST), FakePublisher()

    await relay(ledger_db, first).relay_once()

    assert await relay(ledger_db, second).relay_once() == 0


async def test_a_missing_task_ends_its_order(ledger_db: LedgerDatabase) -> None:
    """An order for a missing row is dropped; it was archived or lost by a restored database."""
    ordered(ledger_db, [999_999])
    sender = relay(ledger_db, FakePublisher())

    assert await sender.relay_once() == 0
    assert left(ledger_db) == []
    assert not sender.failing
