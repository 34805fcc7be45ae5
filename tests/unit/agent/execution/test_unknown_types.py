"""A task of an unknown type waits: it is not run as something else, and it is not given up."""

import asyncio
from dataclasses import replace

import pytest

from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.agent.execution.start_decisions import AttemptStart, NotStarted
from docllm.agent.execution.unknown_types import REMEMBERED, SHOWN_REASONS, UnknownTypes
from docllm.agent.judge import tiers_of
from docllm.agent.ports.outcome import Cancelled, Dead, Moved, Outcome
from docllm.agent.routes import RoutePlan
from docllm.schemas.agent_report import Reason
from docllm.schemas.codes import Code
from docllm.schemas.settings.fallback import FallbackStep
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.waits import NO_ROUTE, WaitReason
from tests.support.clock import HandClock
from tests.support.routes import GOOD, ROUTE, routes
from tests.support.slots import RAISED, SlotsHarness, claimed, ending, started

TIERS = tiers_of(["30s", "5m", "1h"])


def unknown(clock: HandClock | None = None) -> UnknownTypes:
    return UnknownTypes(
        knows=lambda name: name == "a",
        tiers=TIERS,
        clock=clock or HandClock(),
    )


def held(types: UnknownTypes, name: str = "b", fence: int = 0) -> Moved:
    delivery = claimed(1, 0.0, type_name=name)
    delivery.publication = replace(delivery.publication, fence=fence)
    return types.move(delivery)


@pytest.mark.parametrize(("fence", "delay_s"), [(0, 30.0), (1, 300.0), (2, 3600.0), (99, 3600.0)])
def test_it_waits_longer_each_time(fence: int, delay_s: float) -> None:
    """Another agent may know the type, so it is tried soon at first, and then seldom."""
    moved = held(unknown(), fence=fence)

    assert (moved.reason, moved.key) == (WaitReason.TYPE, "b")
    assert moved.failure.error_class == ErrorClass.UNKNOWN_TYPE
    assert delay_s <= moved.delay_s <= 1.2 * delay_s
    assert not moved.spent.has_called


def test_the_report_names_the_type_until_its_tasks_have_come_back() -> None:
    """The reason stays while tasks wait, and goes when they no longer come."""
    clock = HandClock()
    types = unknown(clock)
    held(types)

    assert types.reasons(clock.now_s()) == [Reason(Code.TYPE_UNKNOWN, "b")]
    clock.at_s += 95
    assert types.reasons(clock.now_s()) != []
    clock.at_s += 2
    assert types.reasons(clock.now_s()) == []


def test_a_type_is_no_reason_once_the_settings_have_it() -> None:
    """A person who has added its section is not told to add it; other reasons stay."""
    clock, known = HandClock(), {"a"}
    types = UnknownTypes(knows=known.__contains__, tiers=TIERS, clock=clock)
    held(types)
    held(types, "c")
    known.add("b")

    assert types.reasons(clock.now_s()) == [Reason(Code.TYPE_UNKNOWN, "c")]


def test_any_number_of_names_fills_no_memory() -> None:
    """Names come from tasks: some are remembered, and fewer are shown."""
    types = unknown()
    for number in range(10 * REMEMBERED):
        held(types, f"name-{number}")

    assert len(types.reasons(0.0)) == SHOWN_REASONS
    assert len(types._until_s) == REMEMBERED


def ran(harness: SlotsHarness, **given: object) -> list[Outcome]:
    async def run() -> None:
        slots = harness.slots()
        slots.start(claimed(1, harness.clock.now_s(), type_name="later", **given))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        await slots.drain(5.0)

    harness.guards.replace([RAISED])
    asyncio.run(run())
    return harness.settler.outcomes


def test_no_call_is_made_for_it() -> None:
    """No attempt begins, whatever the guard of its key says."""
    harness = SlotsHarness(routes(), ending(GOOD))

    (outcome,) = ran(harness)

    assert isinstance(outcome, Moved)
    assert (outcome.reason, outcome.key) == (WaitReason.TYPE, "later")
    assert harness.counts.attempts == 0
    assert harness.attempt_runner.limits_s == []


def test_a_refusal_by_routes_is_forgotten_when_routes_change() -> None:
    """A person who has added the route is not told to add it; unknown types stay."""
    clock = HandClock()
    types = unknown(clock)
    held(types)
    types.move_for_route(claimed(1, 0.0), "no agent that received it has a route lost")
    assert len(types.reasons(clock.now_s())) == 2

    types.forget_refusals()

    assert types.reasons(clock.now_s()) == [Reason(Code.TYPE_UNKNOWN, "b")]


def test_admission_gives_the_type_as_the_reason() -> None:
    """No permit of the route is taken, and the agent's report has the type."""
    harness = SlotsHarness(routes(), ending(GOOD))
    harness.guards.replace([])
    admission = harness.admission(CrashSuspects())

    decision = admission.decide(claimed(1, harness.clock.now_s(), type_name="later"))

    assert isinstance(decision, Moved)
    assert (decision.reason, decision.key) == (WaitReason.TYPE, "later")
    assert all(route.idle for route in harness.router)


def test_an_expired_task_of_an_unknown_type_is_dead() -> None:
    """The task's deadline ends the wait."""
    (outcome,) = ran(SlotsHarness(routes(), ending(GOOD)), expired=True)

    assert isinstance(outcome, Dead)


def test_a_cancelled_task_of_an_unknown_type_is_cancelled() -> None:
    """The cancel of its batch ends the wait."""
    harness = SlotsHarness(routes(), ending(GOOD))
    delivery = claimed(1, harness.clock.now_s(), type_name="later")
    assert delivery.row is not None
    delivery.row = replace(delivery.row, cancelled=True)

    harness.slots().start(delivery)

    assert [type(outcome) for outcome in harness.settler.outcomes] == [Cancelled]


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (RoutePlan("lost", known=False), "no agent that received it has a route lost"),
        (
            RoutePlan("a", allowed=frozenset({"x", "b"})),
            "its routes_allowed (b, x) contain neither a nor a fallback of it",
        ),
    ],
)
def test_a_task_that_may_take_no_route_waits_without_a_call(plan: RoutePlan, why: str) -> None:
    """Such a task waits as a task of an unknown type does, and the report says why."""
    harness = SlotsHarness(routes(), ending(GOOD))
    harness.guards.replace([RAISED])
    delivery = claimed(1, harness.clock.now_s())
    delivery.plan = plan

    (outcome,) = started(harness, delivery)

    assert isinstance(outcome, Moved)
    assert (outcome.reason, outcome.key) == (WaitReason.ROUTE, NO_ROUTE)
    assert outcome.failure.text == why
    assert harness.attempt_runner.limits_s == []
    assert harness.unknown_types.reasons(harness.clock.now_s()) == [
        Reason(Code.ROUTE_REFUSED, plan.route, text=why)
    ]


def test_a_task_whose_batch_does_not_allow_its_route_is_given_back_for_an_allowed_one() -> None:
    """The bounds of the batch come with the claim; the line's own bounds win."""
    harness = SlotsHarness(routes(), ending(GOOD))
    harness.guards.replace([])
    admission = harness.admission(CrashSuspects())
    delivery = claimed(1, harness.clock.now_s())
    delivery.plan = RoutePlan(ROUTE, (FallbackStep("other", frozenset()),))
    assert delivery.row is not None
    delivery.row = replace(delivery.row, routes_allowed=("other",))

    assert admission.decide(delivery) is NotStarted.ROUTE
    assert delivery.plan.first == "other"
    delivery.plan = RoutePlan(ROUTE, allowed=frozenset({ROUTE}))
    assert isinstance(admission.decide(delivery), AttemptStart)
