"""The delay queue: deliveries are due at their time, or at once when their holder is gone."""

from docllm.agent.inflight.delay_queue import MAX_S, MIN_HEAP, DelayQueue
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.ports import Partition
from docllm.schemas.task.owner import owner_of
from docllm.schemas.task.record.envelope import Publication
from tests.support.ledger import new_row

PARTITION = Partition("group.tasks", "id", 0, 1)
A, B = 7, 8


def new_delivery(task_id: int = 1) -> Delivery:
    return Delivery(
        partition=PARTITION,
        offset=task_id,
        timestamp_ms=0,
        publication=Publication(
            ledger="ledger", group="group", batch="batch", task_id=task_id, fence=0
        ),
        value=None,
        digest=None,
        route="route",
    )


def delay_while_held(queue: DelayQueue, delivery: Delivery, agent_id: int, now_s: float) -> None:
    """Delay a delivery as the loop does: its row names the owner."""
    delivery.row = new_row(
        task_id=delivery.task_id, status=1, owner=owner_of(agent_id, 1), task_key=b"key"
    )
    queue.put_while_held(delivery, agent_id, now_s)


def test_an_entry_comes_back_when_it_is_due() -> None:
    """A delivery is due at its time, once, and in the order of times."""
    queue = DelayQueue()
    first, second = new_delivery(1), new_delivery(2)
    queue.put(second, 20.0)
    queue.put(first, 10.0)

    assert queue.take_due(9.9, 10) == []
    assert queue.take_due(30.0, 10) == [first, second]
    assert queue.take_due(99.0, 10) == []
    assert len(queue) == 0
    assert first.state is DeliveryState.ASKING


def test_no_more_entries_come_than_were_asked_for() -> None:
    """At most as many deliveries are taken as asked for; the rest stays due."""
    queue = DelayQueue()
    deliveries = [new_delivery(number) for number in range(5)]
    for delivery in deliveries:
        queue.put(delivery, 1.0)

    assert queue.take_due(2.0, 3) == deliveries[:3]
    assert queue.take_due(2.0, 3) == deliveries[3:]


def test_an_entry_that_left_otherwise_is_skipped() -> None:
    """A delivery that ended or got another time does not appear at its old time."""
    queue = DelayQueue()
    gone, moved = new_delivery(1), new_delivery(2)
    queue.put(gone, 10.0)
    queue.put(moved, 10.0)
    gone.state = DeliveryState.ENDED
    queue.put(moved, 20.0)

    assert queue.take_due(15.0, 10) == []
    assert queue.take_due(20.0, 10) == [moved]


def test_places_that_were_left_are_forgotten() -> None:
    """Stale places are dropped.

    Each copy of a task that waits for a day makes the ledger be asked again, and the wait goes on.
    """
    queue, waiting, gone = DelayQueue(), new_delivery(1), new_delivery(2)
    delay_while_held(queue, gone, A, 9e8)
    gone.state = DeliveryState.ENDED
    for second in range(10 * MIN_HEAP):
        queue.put(waiting, float(second))
        assert queue.take_due(float(second), 10) == [waiting]
        queue.put(waiting, 9e9 + second)

    assert len(queue) <= 2 * MIN_HEAP
    assert queue._by_agent == {}
    assert queue.take_due(9e9 + 10 * MIN_HEAP, 10) == [waiting]


def test_a_task_held_by_another_agent_is_asked_about_ever_less_often() -> None:
    """The ledger is asked about a held task after 1 s, doubling to 15 s."""
    queue, delivery = DelayQueue(), new_delivery()
    now_s, waits = 0.0, []
    for _ in range(6):
        delay_while_held(queue, delivery, A, now_s)
        waits.append(delivery.wake_at_s - now_s)
        now_s = delivery.wake_at_s
        assert queue.take_due(now_s, 1) == [delivery]

    assert waits == [1.0, 2.0, 4.0, 8.0, MAX_S, MAX_S]


def test_entries_of_an_agent_that_is_gone_come_at_once() -> None:
    """All deliveries that wait for a lost agent are due at once, and no others.

    Their next wait begins with 1 s again.
    """
    queue = DelayQueue()
    ours, theirs = [new_delivery(1), new_delivery(2)], new_delivery(3)
    for delivery in ours:
        delivery.ask_count = 5
        delay_while_held(queue, delivery, A, 100.0)
    delay_while_held(queue, theirs, B, 100.0)

    assert queue.wake([A], 100.0) == 2
    assert queue.wake([A], 100.0) == 0
    assert queue.take_due(100.0, 10) == ours
    assert ours[0].ask_count == 0
    assert queue.take_due(101.0, 10) == [theirs]


def test_an_entry_that_was_woken_and_is_delayed_again_is_woken_again() -> None:
    """A delivery that was woken and is delayed again is woken again by its new holder's loss.

    Its old place in the heap does not remove it from the new holder's list.
    """
    queue, delivery = DelayQueue(), new_delivery()
    delivery.ask_count = 3
    delay_while_held(queue, delivery, A, 0.0)  # until 8
    queue.wake([A], 1.0)
    assert queue.take_due(1.0, 1) == [delivery]
    delivery.ask_count = 4
    delay_while_held(queue, delivery, B, 1.0)  # until 16
    assert queue.take_due(8.0, 1) == []

    assert queue.wake([B], 9.0) == 1
    assert queue.take_due(9.0, 1) == [delivery]


def test_an_old_entry_does_not_take_its_successors_place() -> None:
    """After a rebalance, a stale place does not touch the new delivery of the same task."""
    queue = DelayQueue()
    old, new = new_delivery(), new_delivery()
    old.ask_count = 1
    delay_while_held(queue, old, A, 0.0)  # until 2
    old.state = DeliveryState.ENDED
    new.ask_count = 4
    delay_while_held(queue, new, A, 0.0)  # until 15
    assert queue.take_due(3.0, 1) == []

    assert queue.wake([A], 3.0) == 1
    assert queue.take_due(3.0, 1) == [new]


def test_a_delivery_that_has_left_is_forgotten() -> None:
    """When all deliveries are out, no agent is remembered."""
    queue = DelayQueue()
    for number in range(10):
        delay_while_held(queue, new_delivery(number), A + number, 0.0)

    assert len(queue.take_due(1.0, 100)) == 10
    assert queue._by_agent == {}


def test_the_snoozed_deliveries_of_a_route_are_found() -> None:
    """Only deliveries that still wait, after a snooze, on that route."""
    queue = DelayQueue()
    snoozed, early, other, taken = (new_delivery(task_id) for task_id in range(1, 5))
    other.route = "other"
    for delivery in (snoozed, other, taken):
        delivery.snoozes = 1
    for delivery in (snoozed, early, other):
        queue.put(delivery, 600.0)
    queue.put(taken, 10.0)
    queue.put(snoozed, 700.0)
    queue.take_due(20.0, 10)

    assert queue.snoozed_on("route") == [snoozed]
    assert queue.snoozed_on("other") == [other]
