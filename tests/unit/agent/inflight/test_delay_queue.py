"""The delay queue: deliveries are due at their time, or at once when their holder is gone."""

from agent.inflight.delay_queue import FEW, LONGEST_S, DelayQueue
from agent.inflight.delivery import Delivery, DeliveryState
from agent.lease import OWNER_BITS
from agent.ports import Partition, Row
from schemas.task.envelope import Publication

PARTITION = Partition("group.tasks", "id", 0, 1)
A, B = 7, 8


def entry(task_id: int = 1) -> Delivery:
    return Delivery(
        PARTITION,
        task_id,
        0,
        Publication("ledger", "group", "batch", task_id, 0),
        None,
        None,
        "route",
    )


def hold_for(hold: DelayQueue, one: Delivery, agent_id: int, now_s: float) -> None:
    """Delay a delivery as the loop does: its row names the owner."""
    # A row as it is read.
    one.row = Row(
        one.task_id,
        1,
        1,
        agent_id << OWNER_BITS | 1,
        0,
        0,
        5,
        0,
        0.0,
        False,  # noqa: FBT003
        "document",
        b"key",
        "batch",
    )
    hold.put_held(one, agent_id, now_s)


def test_an_entry_comes_back_when_it_is_due() -> None:
    """A delivery is due at its time, once, and in the order of times."""
    hold = DelayQueue()
    first, second = entry(1), entry(2)
    hold.put(second, 20.0)
    hold.put(first, 10.0)

    assert hold.next_s() == 10.0
    assert hold.due(9.9, 10) == []
    assert hold.due(30.0, 10) == [first, second]
    assert hold.due(99.0, 10) == []
    assert (hold.next_s(), len(hold)) == (None, 0)
    assert first.state is DeliveryState.ASKING


def test_no_more_entries_come_than_were_asked_for() -> None:
    """At most as many deliveries are taken as asked for; the rest stays due."""
    hold = DelayQueue()
    entries = [entry(number) for number in range(5)]
    for one in entries:
        hold.put(one, 1.0)

    assert hold.due(2.0, 3) == entries[:3]
    assert hold.due(2.0, 3) == entries[3:]


def test_an_entry_that_left_otherwise_is_skipped() -> None:
    """A delivery that ended or got another time does not appear at its old time."""
    hold = DelayQueue()
    gone, moved = entry(1), entry(2)
    hold.put(gone, 10.0)
    hold.put(moved, 10.0)
    gone.state = DeliveryState.GONE
    hold.put(moved, 20.0)

    assert hold.due(15.0, 10) == []
    assert hold.due(20.0, 10) == [moved]


def test_places_that_were_left_are_forgotten() -> None:
    """Stale places are dropped.

    Each copy of a task that waits for a day makes the ledger be asked again, and the wait goes on.
    """
    hold, waiting, gone = DelayQueue(), entry(1), entry(2)
    hold_for(hold, gone, A, 9e8)
    gone.state = DeliveryState.GONE
    for second in range(10 * FEW):
        hold.put(waiting, float(second))
        assert hold.due(float(second), 10) == [waiting]
        hold.put(waiting, 9e9 + second)

    assert len(hold) <= 2 * FEW
    assert hold._by_agent == {}
    assert hold.due(9e9 + 10 * FEW, 10) == [waiting]


def test_a_task_held_by_another_agent_is_asked_about_ever_less_often() -> None:
    """The ledger is asked about a held task after 1 s, doubling to 15 s."""
    hold, one = DelayQueue(), entry()
    now_s, waits = 0.0, []
    for _ in range(6):
        hold_for(hold, one, A, now_s)
        waits.append(one.wake_s - now_s)
        now_s = one.wake_s
        assert hold.due(now_s, 1) == [one]

    assert waits == [1.0, 2.0, 4.0, 8.0, LONGEST_S, LONGEST_S]


def test_entries_of_an_agent_that_is_gone_come_at_once() -> None:
    """All deliveries that wait for a lost agent are due at once, and no others.

    Their next wait begins with 1 s again.
    """
    hold = DelayQueue()
    ours, theirs = [entry(1), entry(2)], entry(3)
    for one in ours:
        one.asks = 5
        hold_for(hold, one, A, 100.0)
    hold_for(hold, theirs, B, 100.0)

    assert hold.wake([A], 100.0) == 2
    assert hold.wake([A], 100.0) == 0
    assert hold.due(100.0, 10) == ours
    assert ours[0].asks == 0
    assert hold.due(101.0, 10) == [theirs]


def test_an_entry_that_was_woken_and_is_held_again_is_woken_again() -> None:
    """A delivery that was woken and is held again is woken again by its new holder's loss.

    Its old place in the heap does not remove it from the new holder's list.
    """
    hold, one = DelayQueue(), entry()
    one.asks = 3
    hold_for(hold, one, A, 0.0)  # until 8
    hold.wake([A], 1.0)
    assert hold.due(1.0, 1) == [one]
    one.asks = 4
    hold_for(hold, one, B, 1.0)  # until 16
    assert hold.due(8.0, 1) == []

    assert hold.wake([B], 9.0) == 1
    assert hold.due(9.0, 1) == [one]


def test_an_old_entry_does_not_take_its_successors_place() -> None:
    """After a rebalance, a stale place does not touch the new delivery of the same task."""
    hold = DelayQueue()
    old, new = entry(), entry()
    old.asks = 1
    hold_for(hold, old, A, 0.0)  # until 2
    old.state = DeliveryState.GONE
    new.asks = 4
    hold_for(hold, new, A, 0.0)  # until 15
    assert hold.due(3.0, 1) == []

    assert hold.wake([A], 3.0) == 1
    assert hold.due(3.0, 1) == [new]


def test_a_delivery_that_has_left_is_forgotten() -> None:
    """When all deliveries are out, no agent is remembered."""
    hold = DelayQueue()
    for number in range(10):
        hold_for(hold, entry(number), A + number, 0.0)

    assert len(hold.due(1.0, 100)) == 10
    assert hold._by_agent == {}
