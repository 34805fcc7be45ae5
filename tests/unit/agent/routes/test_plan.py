"""The routes that a task may take: in which order, for which failures, within which bounds."""

import orjson
import pytest

from docllm.agent.routes import DEFAULT, RouteNames, RoutePlan
from docllm.agent.routes.names import plan_of_body
from docllm.schemas.settings.config import Config, RouteConfig, Trigger
from docllm.schemas.settings.fallback import FallbackStep

ON = frozenset({Trigger.OUTAGE})
CONFIG = Config(
    routes={
        "a": RouteConfig(fallback=("b", "c"), fallback_on=(Trigger.OUTAGE,)),
        "b": RouteConfig(fallback=("d",), fallback_on=(Trigger.TOO_LONG,), model="m"),
        "c": RouteConfig(model="n"),
        "d": RouteConfig(model="o"),
    }
)
NAMES = RouteNames(CONFIG)
PLAN = NAMES.plan_of_route("a")


def test_a_task_goes_on_in_the_order_of_the_chain() -> None:
    """The task skips the routes that the failure does not lead to, and never goes back."""
    assert list(PLAN) == ["a", "b", "d", "c"]
    assert list(PLAN.after("a", Trigger.OUTAGE)) == ["b", "c"]
    assert list(PLAN.after("b", Trigger.TOO_LONG)) == ["d"]
    assert list(PLAN.after("b", Trigger.OUTAGE)) == ["c"]
    assert list(PLAN.after("c", Trigger.OUTAGE)) == []
    assert list(PLAN.after("a", Trigger.MONEY)) == []
    assert list(PLAN.after("elsewhere", Trigger.OUTAGE)) == []


@pytest.mark.parametrize(
    ("allowed", "routes"),
    [(["a"], ["a"]), (["c", "a"], ["a", "c"]), (["d", "c"], ["d", "c"]), (["x"], []), ([], [])],
)
def test_no_route_lies_outside_the_bounds(allowed: list[str], routes: list[str]) -> None:
    """The task's own route is left out too if it is not allowed."""
    plan = PLAN.within(allowed)

    assert list(plan) == routes
    assert plan.first == (routes or ["a"])[0]
    assert plan.has_fallback == (len(routes) > 1)
    assert bool(plan.refusal) == (not routes)
    assert set(plan.after("a", Trigger.OUTAGE)) <= set(allowed)


def test_the_bounds_of_the_line_win() -> None:
    """The bounds of the batch hold only for a line that sets none."""
    assert list(PLAN.within(["c"]).within_batch(["a", "b"])) == ["c"]
    assert PLAN.within(None) is PLAN.within_batch(None) is PLAN


def test_a_batch_may_change_its_bounds() -> None:
    """A plan that was bound by an earlier load of the batch keeps none of its bounds."""
    plan = PLAN.within_batch(["a", "b"])

    assert list(plan.within_batch(["c"])) == ["c"]
    assert plan.within_batch(None) == PLAN
    assert "(x)" in plan.within_batch(["x"]).refusal


def test_a_plan_follows_changed_settings() -> None:
    """A task that waits keeps its route and its bounds, and gets the fallbacks of today."""
    today = RouteNames(Config(routes={"a": RouteConfig(fallback=("d",)), "d": RouteConfig()}))

    assert list(today.renewed(PLAN)) == ["a", "d"]
    assert list(today.renewed(PLAN.within(["a", "b"]))) == ["a"]
    assert list(NAMES.renewed(today.plan_of_route("a"))) == list(PLAN)
    assert list(NAMES.renewed(RoutePlan("a", known=False))) == list(PLAN)
    assert not NAMES.renewed(RoutePlan("gone", known=False)).known


@pytest.mark.parametrize(
    ("line", "plan"),
    [
        ({"id": "a", "route": "a"}, PLAN),
        ({"id": "a", "route": "c", "model": "m"}, RoutePlan("c")),
        ({"id": "a", "model": "m"}, NAMES.plan_of_route("b")),
        ({"id": "a"}, RoutePlan(DEFAULT)),
        ({"id": "a", "route": "gone"}, RoutePlan("gone", known=False)),
        ({"id": "a", "route": "a", "routes_allowed": ["c", "b"]}, PLAN.within(["b", "c"])),
        ({"id": "a", "route": ["a"], "routes_allowed": "a"}, RoutePlan(DEFAULT)),
        ({"custom_id": "a", "route": "a", "body": {}}, RoutePlan(DEFAULT)),
    ],
)
def test_a_line_names_a_route_and_its_bounds(line: dict[str, object], plan: RoutePlan) -> None:
    """A route that the line names comes before that of its model."""
    assert plan_of_body(orjson.dumps(line), NAMES) == plan


def test_a_task_on_a_route_that_is_not_configured_here_takes_none() -> None:
    """The name fits the ledger, whatever the line says."""
    plan = plan_of_body(orjson.dumps({"id": "a", "route": "r" * 200}), NAMES)

    assert list(plan) == []
    assert len(plan.route) <= 64
    assert plan.route.isprintable()
    assert plan.refusal == f"no agent that received it has a route {plan.route}"


def test_a_plan_keeps_the_steps_of_the_settings() -> None:
    """The steps say for which failures a task comes to a route."""
    assert PLAN.steps[0] == FallbackStep("b", ON)
