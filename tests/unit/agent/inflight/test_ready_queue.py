"""The ready queue: routes take turns, and so do new and returned deliveries."""

import pytest

from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.ready_queue import ReadyQueue
from docllm.agent.ports import Partition
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.record.lanes import Lane

PARTITION = Partition("group.tasks", "id", 0, 1)


def new_delivery(number: int, route: str = "a") -> Delivery:
    delivery = Delivery(
        partition=PARTITION,
        offset=number,
        timestamp_ms=0,
        publication=Publication(
            ledger="ledger", group="group", batch="batch", task_id=number, fence=0
        ),
        value=b"body",
        digest=b"d" * 16,
        route=route,
    )
    delivery.state = DeliveryState.READY
    return delivery


def filled(*deliveries: Delivery, back: tuple[Delivery, ...] = ()) -> ReadyQueue:
    ready = ReadyQueue()
    for delivery in deliveries:
        ready.put(delivery, was_waiting=False)
    for delivery in back:
        ready.put(delivery, was_waiting=True)
    return ready


def offsets(deliveries: list[Delivery]) -> list[int]:
    return [delivery.offset for delivery in deliveries]


def test_returned_deliveries_take_turns_with_new_ones() -> None:
    """A flood of retries leaves every second slot to new tasks, and vice versa."""
    ready = filled(*map(new_delivery, (1, 2, 3, 4)), back=tuple(map(new_delivery, (11, 12))))

    assert offsets(ready.take(3, lambda _route: 9)) == [11, 1, 12]
    assert offsets(ready.take(9, lambda _route: 9)) == [2, 3, 4]


def test_turns_go_on_over_claims_of_one() -> None:
    """With one free slot at a time, both kinds are served."""
    ready = filled(*map(new_delivery, (1, 2)), back=tuple(map(new_delivery, (11, 12))))

    assert [offsets(ready.take(1, lambda _route: 1))[0] for _ in range(4)] == [11, 1, 12, 2]


def test_a_closed_route_holds_up_no_other() -> None:
    """At most as many of a route are taken as it has room for; the rest keeps its order."""
    ready = filled(
        new_delivery(1),
        new_delivery(2),
        new_delivery(3),
        new_delivery(4, "b"),
        new_delivery(5, "b"),
    )

    assert offsets(ready.take(9, {"a": 0, "b": 9}.__getitem__)) == [4, 5]
    assert offsets(ready.take(9, {"a": 2, "b": 0}.__getitem__)) == [1, 2]
    assert ready.routes == ["a"]


def test_routes_share_the_slots() -> None:
    """A route with a thousand tasks does not take all slots from a route with three."""
    ready = filled(
        *map(new_delivery, range(10)), *(new_delivery(100 + number, "b") for number in range(3))
    )

    assert sorted(offsets(ready.take(6, lambda _route: 6))) == [0, 1, 2, 100, 101, 102]


def test_a_gone_delivery_is_passed_over_and_forgotten() -> None:
    """A delivery whose partition was revoked is never taken, and its route's name is dropped."""
    ended = new_delivery(1)
    ready = filled(ended, new_delivery(2, "b"))
    ended.state = DeliveryState.ENDED

    ready.drop_unready()

    assert (len(ready), ready.routes) == (1, ["b"])
    assert offsets(ready.take(9, lambda _route: 9)) == [2]


def test_a_shelved_route_counts_apart() -> None:
    """A shelved route's deliveries keep their place, and do not count as soon claimable."""
    ready = filled(new_delivery(1), new_delivery(2, "b"))

    assert offsets(list(ready.shelve("a"))) == [1]
    assert (ready.unshelved, len(ready), ready.is_shelved("a")) == (1, 2, True)
    assert offsets(ready.take_of("a", 5)) == [1]
    assert not ready.is_shelved("a")


def test_the_next_deliveries_are_shown_as_they_will_be_taken() -> None:
    """The deliveries stay in the queue; one whose partition was revoked is left out."""
    gone = new_delivery(13)
    ready = filled(*map(new_delivery, (1, 2)), back=(*map(new_delivery, (11, 12)), gone))
    gone.state = DeliveryState.ENDED

    assert offsets(ready.next_of("a", 3)) == [11, 1, 12]
    assert offsets(ready.take_of("a", 3)) == [11, 1, 12]
    assert ready.next_of("b", 3) == []


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_what_is_shown_first_is_taken_first(limit: int) -> None:
    """A grant that was asked for one delivery may be too small for another, which would wait."""
    gone = new_delivery(10)
    back = (gone, *map(new_delivery, (11, 12, 13)))
    ready = filled(*map(new_delivery, (1, 2, 3)), back=back)
    gone.state = DeliveryState.ENDED

    while shown := ready.next_of("a", limit):
        assert ready.take(limit, lambda _route: limit) == shown


def test_a_route_and_a_lane_without_a_grant_keep_their_turn() -> None:
    """Otherwise a smaller call would use up the grant that was asked for the next one."""
    ready = ReadyQueue()
    for number, (route, lane) in enumerate(
        [("a", Lane.BULK), ("a", Lane.URGENT), ("b", Lane.URGENT)] * 30
    ):
        delivery = new_delivery(number, route=route)
        delivery.lane = lane
        ready.put(delivery, was_waiting=False)

    for _ in range(30):
        (before,) = ready.routes_in_turn[:1]
        shown = ready.next_of(before, 1)
        assert ready.take(1, lambda _route: 1, lambda _delivery: False) == []
        assert ready.routes_in_turn[:1] == [before]
        assert ready.next_of(before, 1) == shown
        assert ready.take(1, lambda _route: 1) == shown


def test_what_comes_next_is_shown_by_the_turns_of_the_lanes() -> None:
    """A full lane hides no other: limits are asked for what is shown."""
    ready = ReadyQueue()
    for lane in Lane:
        for number in range(100):
            delivery = new_delivery(number)
            delivery.lane = lane
            ready.put(delivery, was_waiting=False)
    for _ in range(5):
        shown = ready.next_of("a", 21)
        taken = ready.take(21, lambda _route: 21)
        assert shown == taken
    assert ready.next_of("b", 21) == []
