"""Turns: lanes and tenants share the slots by their weights, and none of them starves."""

from collections import Counter
from functools import partial

import pytest

from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.ready_queue import ReadyQueue
from docllm.agent.inflight.turns import FIRST_TASKS, FIRST_TURNS, MIN_WEIGHT, LaneTurns, TenantTurns
from docllm.agent.ports import Partition
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.record.lanes import TURNS, Lane

PARTITION = Partition("group.tasks", "id", 0, 1)


def new_delivery(
    number: int, tenant: str = "a", lane: Lane = Lane.NORMAL, route: str = "r"
) -> Delivery:
    publication = Publication(
        ledger="ledger", group="group", batch="batch", task_id=number, fence=0
    )
    delivery = Delivery(
        partition=PARTITION,
        offset=number,
        timestamp_ms=0,
        publication=publication,
        value=b"body",
        digest=b"d" * 16,
        route=route,
    )
    delivery.state, delivery.tenant, delivery.lane = DeliveryState.READY, tenant, lane
    return delivery


def queued(amounts: dict[str, int], weights: dict[str, float] | None = None) -> TenantTurns:
    turns = TenantTurns(lambda tenant: (weights or {}).get(tenant, 1.0))
    for tenant, amount in amounts.items():
        for number in range(amount):
            turns.put(new_delivery(number, tenant), was_waiting=False)
    return turns


def has_seat(seats: int, delivery: Delivery) -> bool:
    """Return whether the tenant of a delivery may start one more."""
    return delivery.tenant == "free" or seats > 0


def is_of(tenants: set[str], delivery: Delivery) -> bool:
    return delivery.tenant in tenants


def taken(turns: TenantTurns, most: int) -> list[str]:
    found = (turns.pop() for _ in range(most))
    return [delivery.tenant for delivery in found if delivery is not None]


def test_lanes_take_turns_while_all_have_work() -> None:
    """Of 21 tasks, 16 are urgent, 4 normal and one is bulk, evenly spread."""
    turns = LaneTurns()
    chosen = [turns.choose(list(Lane)) for _ in range(210)]

    assert Counter(chosen) == {lane: 10 * share for lane, share in TURNS.items()}
    assert Counter(chosen[:21]) == TURNS
    assert Lane.NORMAL in chosen[:6]


def test_a_lane_without_work_gives_its_turns_to_the_others() -> None:
    """An idle lane saves no turns up: after an hour it does not take all slots."""
    turns = LaneTurns()
    alone = [turns.choose([Lane.BULK]) for _ in range(100)]
    both = [turns.choose([Lane.NORMAL, Lane.BULK]) for _ in range(50)]

    assert set(alone) == {Lane.BULK}
    assert Counter(both) == {Lane.NORMAL: 40, Lane.BULK: 10}


def test_a_tenant_with_ten_tasks_does_not_wait_behind_thousands() -> None:
    """Tenants take turns, whoever came first."""
    assert taken(queued({"big": 1000, "small": 10}), 20).count("small") == 10


def test_the_first_tasks_of_a_new_tenant_go_ahead_of_the_round() -> None:
    """With equal turns they would wait more than twice as long as alone."""
    turns = queued({"big": 1000})
    taken(turns, 50)
    for number in range(30):
        turns.put(new_delivery(number, "small"), was_waiting=False)

    order = taken(turns, 33)

    assert order[:14].count("small") >= FIRST_TASKS
    assert order[14:].count("small") <= 10
    assert all("big" in order[start : start + 8] for start in range(25))


def test_a_tenant_is_not_new_with_each_of_its_tasks() -> None:
    """One whose queue is always empty after its turn gets no more than its part."""
    turns = queued({"big": 1000})
    order: list[str] = []
    for number in range(100):
        turns.put(new_delivery(number, "small"), was_waiting=False)
        order += taken(turns, 2)

    assert order[:14].count("small") >= FIRST_TASKS / 2
    assert 95 <= order.count("small") <= 100


def test_new_tenants_do_not_let_the_others_starve() -> None:
    """One turn of four is the round's, which those who wait share."""
    turns = queued({"big": 1000})
    order: list[str] = []
    for number in range(100):
        turns.put(new_delivery(number, f"new-{number}"), was_waiting=False)
        order += taken(turns, 1)

    assert order.count("big") >= 10


def test_a_weight_is_a_part_of_the_turns() -> None:
    """A tenant of weight 3 has three tasks started for each one of weight 1."""
    turns = queued({"a": 400, "b": 400, "half": 400}, {"a": 3.0, "half": 0.5})
    taken(turns, 3 * FIRST_TASKS)  # b and half are new

    assert Counter(taken(turns, 90)) == {"a": 60, "b": 20, "half": 10}


@pytest.mark.parametrize("weight", [0.0, -1.0, MIN_WEIGHT])
def test_no_weight_lets_a_tenant_starve(weight: float) -> None:
    """Whatever the weight is, each turn ends, and the tenant gets some."""
    turns = queued({"a": 300, "poor": 3}, {"poor": weight})

    assert Counter(taken(turns, 303)) == {"a": 300, "poor": 3}


def test_a_tenant_without_room_keeps_its_order_and_leaves_its_turns_to_others() -> None:
    """The cap is reached with each second take; none of the tenant's later tasks passes another."""
    turns = queued({"free": 60, "capped": 6}, {"capped": 5.0})
    order: list[tuple[str, int]] = []
    for number in range(12):
        seats = number % 2
        for _ in range(4):
            delivery = turns.pop(partial(has_seat, seats))
            assert delivery is not None
            seats -= delivery.tenant == "capped"
            order.append((delivery.tenant, delivery.offset))
        turns.restore()

    for tenant in ("capped", "free"):
        offsets = [offset for name, offset in order if name == tenant]
        assert offsets == sorted(offsets)
    assert Counter(tenant for tenant, _ in order) == {"capped": 6, "free": 42}


def test_tenants_that_are_set_aside_are_still_there() -> None:
    """Tenants count as waiting again once the others have taken theirs."""
    turns = queued({"capped": 3, "free": 1})

    assert turns.pop(lambda one: one.tenant == "free") is not None
    assert turns.pop(lambda _one: False) is None
    assert len(turns) == 0
    turns.restore()
    assert len(turns) == 3
    assert taken(turns, 9) == ["capped"] * 3


def test_a_new_tenant_may_be_set_aside_in_its_turn_of_the_round() -> None:
    """The tenant's first tasks do not go ahead then, and come to their turn later."""
    turns = queued({"a": 20, "new": 2 * FIRST_TURNS + 2})
    assert taken(turns, 2 * FIRST_TURNS + 1).count("a") == 1

    others = [turns.pop(lambda one: one.tenant == "a") for _ in range(3)]
    turns.restore()

    assert [delivery and delivery.tenant for delivery in others] == ["a"] * 3
    assert taken(turns, 30).count("new") == 2


def test_tenants_without_tasks_do_not_hide_those_with_tasks() -> None:
    """A bug let the quotas ask for nothing: the next task was that of a new tenant without any."""
    turns = queued({"big": 5, "new": 2})
    assert taken(turns, 4).count("new") == 2
    assert [delivery.tenant for delivery in turns.next(1)] == ["big"]


def test_a_tenant_without_a_place_is_the_next_for_which_one_is_asked() -> None:
    """An agent whose only slot is busy asks for one place, and not always for the same tenant's."""
    turns = queued({"big": 90, "small": 3, "poor": 3}, {"big": 0.5})
    for _ in range(2 * FIRST_TASKS):  # until no tenant is new
        turns.pop(lambda one: one.tenant == "big")
        turns.restore()
    order = []
    for _ in range(60):
        (asked,) = turns.next(1)
        found = turns.pop(partial(is_of, {"big", asked.tenant}))
        turns.restore()
        order.append(found.tenant if found is not None else "")
    assert Counter(order) == {"big": 54, "small": 3, "poor": 3}
    assert set(order[:20]) == {"big", "small", "poor"}


@pytest.mark.parametrize("weights", [{}, {"large": 0.5}, {"small": 3.0}])
def test_a_tenant_without_a_grant_is_the_next_to_be_taken(weights: dict[str, float]) -> None:
    """Otherwise a smaller call would use up the grant that was asked for its call."""
    turns = queued({"small": 50, "large": 50}, weights)

    for _ in range(3):
        for _ in range(8):
            turns.pop(partial(is_of, {"small"}))
        turns.restore()
        (asked,) = list(turns.next(1))[:1]

        assert asked.tenant == "large"
        assert turns.pop() is asked


def test_a_tenant_that_is_done_is_forgotten() -> None:
    """Tenants come from tasks, so their names must not pile up."""
    turns = queued({str(number): 1 for number in range(100)})

    assert len(taken(turns, 200)) == 100
    assert (len(turns), turns._queues, list(turns._round)) == (0, {}, [])


def test_gone_deliveries_do_not_count() -> None:
    """A delivery whose partition was revoked takes no turn."""
    turns = queued({"a": 2, "b": 1})
    for delivery in turns:
        if delivery.tenant == "b" or delivery.offset == 0:
            delivery.state = DeliveryState.ENDED
    assert len(turns) == 3

    turns.drop_unready()

    assert (len(turns), taken(turns, 9)) == (1, ["a"])


def test_no_lane_and_no_tenant_starves_in_the_ready_queue() -> None:
    """With one free slot at a time, everything that waits comes within a bounded time."""
    ready = ReadyQueue()
    for number in range(2000):
        lane = (Lane.URGENT, Lane.URGENT, Lane.NORMAL, Lane.BULK)[number % 4]
        ready.put(new_delivery(number, f"big-{number % 3}", lane), was_waiting=False)
    last = new_delivery(9999, "small", Lane.BULK)
    ready.put(last, was_waiting=False)

    order = [ready.take(1, lambda _route: 1)[0] for _ in range(21 * 4)]

    assert Counter(delivery.lane for delivery in order) == {
        lane: 4 * share for lane, share in TURNS.items()
    }
    rest = [ready.take(1, lambda _route: 1)[0] for _ in range(21 * 4 * FIRST_TASKS)]
    assert last in order + rest, "before it, two other new tenants of the lane have ten turns each"


def test_a_lane_whose_routes_have_no_room_gives_its_turn_away() -> None:
    """Urgent tasks of a closed route hold up nobody."""
    ready = ReadyQueue()
    ready.put(new_delivery(1, lane=Lane.URGENT, route="closed"), was_waiting=False)
    ready.put(new_delivery(2, lane=Lane.BULK), was_waiting=False)

    (delivery,) = ready.take(5, {"closed": 0, "r": 9}.__getitem__)

    assert delivery.offset == 2
    assert ready.routes == ["closed"]
