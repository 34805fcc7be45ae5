"""One place decides which claimed task may start, and says why another one may not."""

from collections.abc import Callable

import pytest

from agent.execution.admission import Admission, NotAdmitted, Permit
from agent.execution.crash_suspects import CrashSuspects
from agent.inflight.delivery import Delivery
from tests.support.routes import GOOD, ROUTE, call, failed, routes
from tests.support.slots import RAISED, SlotsHarness, claimed, ending


def harness() -> SlotsHarness:
    harness = SlotsHarness(routes(slots=3), ending(GOOD))
    harness.guards.replace([])
    return harness


def admission(harness: SlotsHarness) -> Admission:
    return harness.admission(CrashSuspects())


def test_a_permit_takes_the_routes_ticket_and_gives_it_back() -> None:
    """The route counts the attempt until its outcome is known."""
    made = harness()
    admitted = admission(made)
    delivery = claimed(1, made.clock.now_s())

    permit = admitted.grant(delivery)

    assert isinstance(permit, Permit)
    assert (permit.ticket.route, permit.limit_s, permit.refused_alone) == (ROUTE, None, False)
    assert not next(iter(made.table)).idle
    assert admitted.ended(permit, GOOD) is GOOD
    assert next(iter(made.table)).idle


def leave(admitted: Admission, _harness: SlotsHarness, _delivery: Delivery) -> None:
    admitted.stop_granting()


def lose_lease(_admitted: Admission, _harness: SlotsHarness, delivery: Delivery) -> None:
    assert delivery.lease is not None
    delivery.lease.is_lost = True


def run_a_suspect(admitted: Admission, harness: SlotsHarness, _delivery: Delivery) -> None:
    admitted.enter(claimed(2, harness.clock.now_s(), lease_losses=2))


def raise_a_guard(_admitted: Admission, harness: SlotsHarness, _delivery: Delivery) -> None:
    harness.guards.replace([RAISED])


def stop_the_route(_admitted: Admission, harness: SlotsHarness, _delivery: Delivery) -> None:
    for _ in range(3):
        call(harness.table, failed(), harness.clock.now_s())


@pytest.mark.parametrize(
    ("happened", "reason"),
    [
        (leave, NotAdmitted.LEAVING),
        (lose_lease, NotAdmitted.LEASE),
        (run_a_suspect, NotAdmitted.SUSPECT),
        (raise_a_guard, RAISED),
        (stop_the_route, NotAdmitted.ROUTE),
    ],
)
def test_a_task_that_may_not_start_gets_the_reason(
    happened: Callable[[Admission, SlotsHarness, Delivery], None], reason: object
) -> None:
    """Each rule has its own reason, and no ticket of the route is taken."""
    made = harness()
    admitted = admission(made)
    delivery = claimed(1, made.clock.now_s(), lease_losses=2)

    happened(admitted, made, delivery)

    assert admitted.grant(delivery) == reason
    assert next(iter(made.table)).idle


def test_a_suspect_with_a_slot_may_be_asked_about_again() -> None:
    """A suspect that joined a guard's look is asked about twice; it is not another suspect."""
    made = harness()
    admitted = admission(made)
    delivery = claimed(1, made.clock.now_s(), lease_losses=3)

    admitted.enter(delivery)

    assert isinstance(admitted.grant(delivery), Permit)
    assert admitted.room() == 0
    admitted.leave(delivery)
    assert admitted.room() == 8
