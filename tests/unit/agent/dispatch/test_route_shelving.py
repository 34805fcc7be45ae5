"""A route that stays closed gives way to the others."""

import pytest

from docllm.agent.dispatch.route_shelving import RouteShelving
from docllm.agent.execution.admission import Admission
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports import Partition, Row
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.record.lanes import Lane
from tests.support.doubles import double_of
from tests.support.ledger import new_row

PARTITION = Partition("group.tasks", "id", 0, 1)
LIMITS = InFlightLimits(crowd=2)


def row(task_id: int) -> Row:
    return new_row(task_id=task_id, status=1)


class Yard:
    """Deliveries of two routes, some of which are closed."""

    def __init__(self, *routes: str) -> None:
        self.table, self.closed, self.running = (
            InFlightTable(limits=LIMITS),
            set[str](),
            set[str](),
        )
        self.shelving = RouteShelving(
            table=self.table,
            admission=double_of(
                Admission, tasks_wait_for=self.closed.__contains__, busy_routes=lambda: self.running
            ),
            limits=LIMITS,
        )
        for number, route in enumerate(routes):
            self.arrive(number, route)

    def arrive(self, number: int, route: str, *, known: bool = True) -> Delivery:
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
        delivery.row = row(number) if known else None
        self.table.add(delivery, 0.0, redelivered=False)
        return delivery


def test_a_closed_route_is_shelved_when_the_agent_is_full() -> None:
    """A closed route is shelved when the agent is full: its deliveries drop their bodies.

    So do later ones; the other route's keep theirs.
    """
    yard = Yard("a", "a", "b")
    yard.closed.add("a")
    yard.shelving.update(0.0, full=True)
    assert yard.table.shelved == 0

    yard.shelving.update(LIMITS.shelve_after_s, full=True)
    later = yard.arrive(9, "a")

    assert (yard.table.shelved, yard.table.waiting_in(Lane.NORMAL), later.value) == (3, 1, None)
    assert yard.table.bodies_bytes == len(b"body")


def test_a_body_is_kept_until_the_ledger_is_known_to_have_it() -> None:
    """A body is kept until the ledger is known to have it.

    A record may name a task that a restored ledger lacks, and its quarantine row would have no
    value.
    """
    yard = Yard("a")
    before = yard.arrive(8, "a", known=False)
    yard.closed.add("a")
    yard.shelving.update(0.0, full=True)
    yard.shelving.update(LIMITS.shelve_after_s, full=True)
    later = yard.arrive(9, "a", known=False)

    assert yard.table.take_to_ask(LIMITS.shelve_after_s, 10) == [before, later]
    assert [(delivery.state, delivery.value) for delivery in (before, later)] == [
        (DeliveryState.ASKING, b"body")
    ] * 2
    for delivery in (before, later):
        delivery.row = row(delivery.task_id)
        yard.table.queue_for_claim(delivery)
    assert (before.value, later.value, yard.table.shelved) == (None, None, 3)
    assert len(yard.table.take_ready_for("a", 10)) == 3


def test_nothing_is_shelved_while_there_is_room() -> None:
    """Nothing is shelved while there is room, because a kept body need not be read again."""
    yard = Yard("a")
    yard.closed.add("a")
    yard.shelving.update(0.0, full=False)
    yard.shelving.update(LIMITS.move_after_s, full=False)

    assert yard.table.shelved == 0


def test_a_route_that_opens_is_shelved_no_more() -> None:
    """The deliveries of a route that opens count as work at hand again."""
    yard = Yard("a")
    yard.closed.add("a")
    yard.shelving.update(0.0, full=True)
    yard.shelving.update(LIMITS.shelve_after_s, full=True)
    yard.closed.clear()

    yard.shelving.update(LIMITS.shelve_after_s, full=True)

    assert (yard.table.shelved, yard.table.waiting_in(Lane.NORMAL)) == (0, 1)


@pytest.mark.parametrize(
    ("running", "other", "moves"), [((), "b", ["a"]), (("b",), "a", ["a"]), ((), "a", [])]
)
def test_many_tasks_of_a_closed_route_go_to_a_tier_while_another_is_open(
    running: tuple[str, ...], other: str, moves: list[str]
) -> None:
    """Many tasks of a closed route go to a tier while another route is open.

    If every route is closed, the group waits and nothing is moved.
    """
    yard = Yard("a", "a", "a", other)
    yard.closed.add("a")
    yard.running.update(running)
    yard.shelving.update(0.0, full=True)

    yard.shelving.update(LIMITS.move_after_s - 1, full=True)
    assert yard.shelving.routes_to_move(LIMITS.move_after_s - 1, ()) == []
    assert yard.shelving.routes_to_move(LIMITS.move_after_s, ()) == moves


def test_a_task_of_a_closed_route_that_others_wait_behind_goes_to_a_tier() -> None:
    """A closed route's task that blocks a partition goes to a tier.

    Few tasks may wait, and no other may be at hand: the partition is not read on until its
    watermark moves.
    """
    yard = Yard("a", "a")
    yard.closed.add("a")
    yard.shelving.update(0.0, full=False)

    assert yard.shelving.routes_to_move(LIMITS.move_after_s - 1, {"a"}) == []
    assert yard.shelving.routes_to_move(LIMITS.move_after_s, {"a", "open"}) == ["a"]
