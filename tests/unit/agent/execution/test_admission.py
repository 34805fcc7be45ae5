"""One place decides which claimed task may start, and says why another one may not."""

from collections.abc import Callable

import pytest

from docllm.agent.execution.admission import Admission
from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.agent.execution.start_decisions import AttemptStart, NotStarted
from docllm.agent.inflight.delivery import Delivery
from tests.support.routes import GOOD, ROUTE, call, failed, routes
from tests.support.slots import RAISED, SlotsHarness, claimed, ending


def make_harness() -> SlotsHarness:
    harness = SlotsHarness(routes(slots=3), ending(GOOD))
    harness.guards.replace([])
    return harness


def admission_of(harness: SlotsHarness) -> Admission:
    return harness.admission(CrashSuspects())


def test_a_permit_takes_the_routes_permit_and_gives_it_back() -> None:
    """The route counts the attempt until its outcome is known."""
    harness = make_harness()
    admission = admission_of(harness)
    delivery = claimed(1, harness.clock.now_s())

    start = admission.decide(delivery)

    assert isinstance(start, AttemptStart)
    assert (start.route_call.route, start.limit_s, start.refused_alone) == (ROUTE, None, False)
    assert not next(iter(harness.router)).idle
    assert admission.end(start, GOOD) is GOOD
    assert next(iter(harness.router)).idle


def leave(admission: Admission, _harness: SlotsHarness, _delivery: Delivery) -> None:
    admission.stop_starting()


def lose_lease(_admission: Admission, _harness: SlotsHarness, delivery: Delivery) -> None:
    assert delivery.lease is not None
    delivery.lease.is_lost = True


def run_a_suspect(admission: Admission, harness: SlotsHarness, _delivery: Delivery) -> None:
    admission.enter(claimed(2, harness.clock.now_s(), lease_losses=2))


def raise_a_guard(_admission: Admission, harness: SlotsHarness, _delivery: Delivery) -> None:
    harness.guards.replace([RAISED])


def stop_the_route(_admission: Admission, harness: SlotsHarness, _delivery: Delivery) -> None:
    for _ in range(3):
        call(harness.router, failed(), harness.clock.now_s())


@pytest.mark.parametrize(
    ("happened", "reason"),
    [
        (leave, NotStarted.LEAVING),
        (lose_lease, NotStarted.LEASE),
        (run_a_suspect, NotStarted.SUSPECT),
        (raise_a_guard, RAISED),
        (stop_the_route, NotStarted.ROUTE),
    ],
)
def test_a_task_that_may_not_start_gets_the_reason(
    happened: Callable[[Admission, SlotsHarness, Delivery], None], reason: object
) -> None:
    """Each rule has its own reason, and no start of the route is taken."""
    harness = make_harness()
    admission = admission_of(harness)
    delivery = claimed(1, harness.clock.now_s(), lease_losses=2)

    happened(admission, harness, delivery)

    assert admission.decide(delivery) == reason
    assert next(iter(harness.router)).idle


def test_a_suspect_with_a_slot_may_be_asked_about_again() -> None:
    """A suspect that joined a guard's look is asked about twice; it is not another suspect."""
    harness = make_harness()
    admission = admission_of(harness)
    delivery = claimed(1, harness.clock.now_s(), lease_losses=3)

    admission.enter(delivery)

    assert isinstance(admission.decide(delivery), AttemptStart)
    assert admission.room() == 0
    admission.leave(delivery)
    assert admission.room() == 8
