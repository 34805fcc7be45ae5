"""An attempt whose route refuses the task or fails goes on on the route's fallback."""

from dataclasses import replace

import pytest

from docllm.agent.execution.admission import Admission
from docllm.agent.execution.attempt_routes import AttemptRoutes
from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.agent.execution.start_decisions import AttemptStart
from docllm.agent.handlers import OtherRoute
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.ports.outcome import Dead, Failure, Released, Retry, Snooze, Spent
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig, Trigger
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.guard import Guard
from tests.support.handlers import StillClock
from tests.support.routes import GOOD, exhausted, failed, paused, routes, snoozed
from tests.support.slots import RAISED, SlotsHarness, claimed, ending

ALL = tuple(Trigger)
ROUTES = {
    "a": RouteConfig(fallback=("b", "c"), fallback_on=ALL),
    "b": RouteConfig(model="m"),
    "c": RouteConfig(model="n"),
}


class Attempts:
    """Attempts on route `a` in one agent."""

    def __init__(self, on: tuple[Trigger, ...] = ALL, guards: tuple[Guard, ...] = ()) -> None:
        changed = {"a": RouteConfig(fallback=("b", "c"), fallback_on=on)}
        self.router = routes(routes=ROUTES | changed)
        self.harness = SlotsHarness(self.router, ending(GOOD))
        self.harness.guards.replace(guards)
        self.admission: Admission = self.harness.admission(CrashSuspects())
        self.now_s = self.harness.clock.now_s()

    def begin(self, task_id: int = 1, *allowed: str) -> tuple[Delivery, AttemptRoutes]:
        """Return a task on its first route, with the start for it."""
        delivery = claimed(task_id, self.now_s)
        plan = self.router.naming.plan_of_route("a").within(allowed or None)
        delivery.plan, delivery.route = plan, plan.first
        start = self.admission.decide(delivery)
        assert isinstance(start, AttemptStart)
        self.admission.enter(delivery)
        return delivery, AttemptRoutes(admission=self.admission, delivery=delivery, start=start)

    def stop(self, route: str) -> None:
        """Let an outage stop a route."""
        while not self.router.closed(route, self.now_s):
            start = self.router.begin(route, 9, self.now_s)
            assert start is not None
            self.router.ended(start, failed(), self.now_s)


def refused(error_class: str) -> Dead:
    """Return the refusal of one task."""
    return Dead(Failure(ErrorClass[error_class], "no"), Spent(call_id="trace"))


@pytest.mark.parametrize(
    ("outcome", "trigger"),
    [
        (refused("TOO_LONG"), Trigger.TOO_LONG),
        (refused("INPUT_CUT"), Trigger.TOO_LONG),
        (refused("FILTERED"), Trigger.FILTERED),
        (snoozed("CAPACITY"), Trigger.CAPACITY),
        (snoozed("MONEY"), Trigger.MONEY),
    ],
)
def test_a_failure_that_is_named_leads_to_the_next_route(
    outcome: Dead | Snooze, trigger: Trigger
) -> None:
    """The slot counts for the other route, and the permits of both are given back."""
    attempts = Attempts((trigger,))
    delivery, way = attempts.begin()

    assert way.route_after_failure(outcome) == OtherRoute("b")
    assert delivery.route == "b"
    assert dict(attempts.admission.busy_routes()) == {"b": 1}
    assert way.end(GOOD) is GOOD
    attempts.admission.leave(delivery)
    assert dict(attempts.admission.busy_routes()) == {}
    assert all(route.idle for route in attempts.router)


@pytest.mark.parametrize("trigger", ALL)
def test_a_failure_that_is_not_named_ends_the_attempt(trigger: Trigger) -> None:
    """FILTERED and MONEY must be named; nothing else follows from a name."""
    attempts = Attempts(tuple(set(ALL) - {trigger}))
    outcome = snoozed("RATE") if trigger is Trigger.OUTAGE else refused(trigger.value)
    delivery, way = attempts.begin()

    assert way.route_after_failure(outcome) is outcome
    assert delivery.route == "a"


def test_a_single_failure_of_the_provider_is_tried_again_on_the_same_route() -> None:
    """Only once the route has stopped do its tasks leave it."""
    attempts = Attempts()
    delivery, way = attempts.begin()

    assert isinstance(way.route_after_failure(failed()), Retry)
    assert delivery.route == "a"


@pytest.mark.parametrize("outcome", [failed(), exhausted(), failed("NETWORK"), snoozed("AUTH")])
def test_a_task_leaves_a_route_that_has_stopped(outcome: Retry | Snooze | Dead) -> None:
    """The task whose failure stops the route, or that comes after it, goes on at once."""
    attempts = Attempts()
    delivery, way = attempts.begin()
    attempts.stop("a")

    assert way.route_after_failure(outcome) == OtherRoute("b")
    assert delivery.next_route == ""


def test_a_closed_route_is_passed_over() -> None:
    """The chain goes on to the next route that takes calls."""
    attempts = Attempts()
    attempts.stop("b")
    delivery, way = attempts.begin()

    assert way.route_after_failure(refused("TOO_LONG")) == OtherRoute("c")
    assert delivery.route == "c"


def test_a_guarded_route_is_passed_over() -> None:
    """A guard on the fallback for this batch and type holds the task back there."""
    attempts = Attempts(guards=(replaced("b"),))
    _, way = attempts.begin()

    assert way.route_after_failure(refused("TOO_LONG")) == OtherRoute("c")


def replaced(route: str) -> Guard:
    """Return a raised guard of another route."""
    return Guard(**{name: getattr(RAISED, name) for name in RAISED.__slots__} | {"route": route})


def test_a_task_that_was_refused_waits_for_its_fallback() -> None:
    """Without room anywhere it waits uncounted, and then begins where it was to go."""
    attempts = Attempts()
    attempts.stop("b")
    attempts.stop("c")
    delivery, way = attempts.begin()

    outcome = way.route_after_failure(refused("FILTERED"))

    assert isinstance(outcome, Snooze)
    assert outcome.failure.error_class == ErrorClass.FILTERED
    assert 1.0 <= outcome.delay_s <= 4.0
    assert delivery.own_route == "b"


def test_a_refused_task_waits_for_an_open_route_rather_than_for_a_stopped_one() -> None:
    """The open route has no room at the moment, but it will have before the other one is back."""
    attempts = Attempts()
    attempts.stop("b")
    delivery, way = attempts.begin()
    attempts.admission.stop_starting()

    assert isinstance(way.route_after_failure(refused("TOO_LONG")), Snooze)
    assert delivery.own_route == "c"


def test_a_refusal_by_another_route_says_nothing_about_this_one() -> None:
    """A fallback with a wrong key refused the task; this route has answered others since."""
    attempts = Attempts()
    delivery, way = attempts.begin()
    way.end(GOOD)
    delivery.auth_failed_at_s, delivery.auth_failed_on = attempts.now_s - 1.0, "b"
    start = attempts.admission.decide(delivery)
    assert isinstance(start, AttemptStart)
    assert not start.refused_alone

    delivery.auth_failed_on = "a"
    start = attempts.admission.decide(delivery)
    assert isinstance(start, AttemptStart)
    assert start.refused_alone


def test_a_task_does_not_leave_a_stopped_route_for_closed_ones() -> None:
    """The task waits for its own route, uncounted, as without a fallback."""
    attempts = Attempts()
    delivery, way = attempts.begin()
    for route in "abc":
        attempts.stop(route)

    outcome = way.route_after_failure(failed())

    assert isinstance(outcome, Snooze)
    assert delivery.own_route == "a"


def test_an_attempt_goes_along_the_chain_and_never_back() -> None:
    """Each route is tried once; the last failure is the attempt's outcome."""
    attempts = Attempts()
    _, way = attempts.begin()

    assert way.route_after_failure(refused("TOO_LONG")) == OtherRoute("b")
    assert way.route_after_failure(refused("TOO_LONG")) == OtherRoute("c")
    assert way.route_after_failure(refused("TOO_LONG")) == refused("TOO_LONG")


@pytest.mark.parametrize(
    ("allowed", "following"), [(("a",), None), (("a", "c"), OtherRoute("c")), (("a", "x"), None)]
)
def test_no_attempt_leaves_the_allowed_routes(
    allowed: tuple[str, ...], following: OtherRoute | None
) -> None:
    """Routes outside the bounds are never tried."""
    attempts = Attempts()
    _, way = attempts.begin(1, *allowed)

    outcome = way.route_after_failure(refused("TOO_LONG"))

    assert outcome == (following or refused("TOO_LONG"))


def test_an_attempt_ends_where_it_is_when_the_agent_leaves() -> None:
    """A draining agent begins no call."""
    attempts = Attempts()
    _, way = attempts.begin()
    attempts.admission.stop_starting()

    assert not isinstance(way.route_after_failure(refused("CAPACITY")), OtherRoute)


def test_the_routes_learn_of_each_failure_once() -> None:
    """The first route learns when the task leaves it, and not again at the end."""
    attempts = Attempts()
    _, way = attempts.begin()
    way.route_after_failure(refused("TOO_LONG"))

    assert way.end(Released()) == Released()
    assert {route.name: route.take_counts() for route in attempts.router} == {
        "a": (1, 0),
        "b": (0, 0),
        "c": (0, 0),
        "default": (0, 0),
    }


def test_an_attempt_may_go_on_on_the_route_that_refused_it() -> None:
    """The route learns of the refusal first, and has another start for the attempt."""
    attempts = Attempts()
    delivery, way = attempts.begin()

    assert way.retry_on_route(refused("BAD_REQUEST")) == OtherRoute("a")
    assert way.end(GOOD) is GOOD
    attempts.admission.leave(delivery)
    counts = {route.name: route.take_counts() for route in attempts.router}
    assert counts["a"] == (2, 0)
    assert all(route.idle for route in attempts.router)


def test_an_attempt_ends_if_its_route_takes_no_other_call() -> None:
    """A route that has stopped is left to its probes."""
    attempts = Attempts()
    _, way = attempts.begin()
    attempts.stop("a")

    outcome = way.retry_on_route(failed())

    assert isinstance(outcome, Snooze)
    assert way.end(outcome) is outcome


def test_an_attempt_may_make_the_call_that_tries_a_paused_route() -> None:
    """If all slots wait for the route, nobody else would try it."""
    attempts = Attempts()
    _, way = attempts.begin()
    paused(attempts.router, snoozed("RATE"), attempts.now_s, "a")
    assert attempts.router.closed("a", attempts.now_s)
    assert way.retry_on_route(snoozed("RATE")) is None

    attempts.admission.clock = StillClock(attempts.now_s + 6)

    assert way.retry_on_route(snoozed("RATE")) == OtherRoute("a")


def test_no_attempt_calls_again_when_the_agent_leaves() -> None:
    """The refused call's outcome is settled."""
    attempts = Attempts()
    _, way = attempts.begin()
    attempts.admission.stop_starting()

    assert way.retry_on_route(snoozed("CAPACITY")) == snoozed("CAPACITY")


def test_no_attempt_calls_again_when_its_batch_is_held_back() -> None:
    """A guard's tasks make no call but those of its looks."""
    attempts = Attempts()
    _, way = attempts.begin()
    attempts.harness.guards.replace((replace(RAISED, route="a"),))

    assert way.retry_on_route(snoozed("CAPACITY")) == snoozed("CAPACITY")


def test_a_paused_route_is_left_for_its_lack_of_capacity_alone() -> None:
    """A rate limit is waited for."""
    for error_class, trigger in (("CAPACITY", Trigger.CAPACITY), ("RATE", None)):
        table = routes(llm=LLMConfig(base_url="http://llm"))
        paused(table, snoozed(error_class), 100.0)
        assert table.trigger("default", 100.0) is trigger


def test_a_parked_route_is_left_for_money_or_as_one_that_is_out() -> None:
    """A key that is not accepted is an outage; money has a name of its own."""
    for error_class, trigger in (("AUTH", Trigger.OUTAGE), ("MONEY", Trigger.MONEY)):
        table = routes()
        paused(table, snoozed(error_class), 100.0)
        assert table.trigger("default", 100.0) is trigger
    assert routes().trigger("default", 0.0) is None
    assert routes().trigger("unknown", 0.0) is None
    assert Config().routes == {}
