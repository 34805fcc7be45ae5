"""A long document whose route has a fallback: parts that are too long, and what routes learn."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from docllm.agent.execution.admission import Admission
from docllm.agent.execution.attempt_routes import AttemptRoutes
from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.agent.execution.start_decisions import AttemptStart
from docllm.agent.ports import Call, Reply, RouteClient
from docllm.agent.ports.outcome import Outcome, Snooze, Succeeded
from docllm.schemas.settings.config import RouteConfig, TypeConfig
from docllm.schemas.task.failures import ErrorClass
from tests.support.handlers import FakeLLM, completion, handlers_harness
from tests.support.routes import GOOD, failed, routes
from tests.support.slots import SlotsHarness, claimed, ending

ROUTES = {
    "small": RouteConfig(model="s", fallback=("large",)),
    "large": RouteConfig(model="l"),
}
TOO_LONG = Reply(400, {}, b'{"error": {"code": "context_length_exceeded", "message": "long"}}')
TEXT = "\n\n".join(f"Name {number} " + "x" * 390 for number in range(60))


@dataclass
class Provider(FakeLLM):
    """Refuses what is longer than it takes, and notes how many calls its route knows of."""

    replies: list[Any] = field(default_factory=list)
    most_chars: int = 1_000_000
    known: list[bool] = field(default_factory=list)
    attempt: "Attempt | None" = None

    async def complete(self, call: Call) -> Reply:
        self.calls.append(call)
        if self.attempt is not None:
            self.known.append(not self.attempt.is_idle)
        await asyncio.sleep(0)
        return TOO_LONG if len(call.body) > self.most_chars else completion()

    def lengths(self) -> list[int]:
        """Return the lengths of the requests."""
        return [len(call.body) for call in self.calls]


class Attempt:
    """One attempt at a long document on route `small`."""

    def __init__(self, *allowed: str) -> None:
        self.small, self.large = Provider(most_chars=3000, attempt=self), Provider(attempt=self)
        self.router = routes(routes=ROUTES)
        harness = SlotsHarness(self.router, ending(GOOD))
        self.admission: Admission = harness.admission(CrashSuspects())
        self.now_s = harness.clock.now_s()
        self.delivery = claimed(1, self.now_s)
        self.delivery.plan = self.router.naming.plan_of_route("small").within(allowed or None)
        self.delivery.route = "small"

    @property
    def is_idle(self) -> bool:
        """Return whether no route knows of a running call."""
        return all(route.idle for route in self.router)

    def run(self) -> Outcome:
        """Run the attempt to its end; return the outcome to settle."""
        start = self.admission.decide(self.delivery)
        assert isinstance(start, AttemptStart)
        self.admission.enter(self.delivery)
        way = AttemptRoutes(admission=self.admission, delivery=self.delivery, start=start)
        clients = {
            "small": RouteClient(self.small, "s", 30.0, context_tokens=4000),
            "large": RouteClient(self.large, "l", 30.0, context_tokens=40_000),
        }
        tried = handlers_harness(types={"map-reduce": TypeConfig()})
        tried.handlers._tools = replace(tried.tools, route_client=clients.__getitem__)
        line = {
            "id": "a",
            "type": "map-reduce",
            "prompt": "Names?\n{document}",
            "input": {"text": TEXT},
        }
        outcome = tried.run(
            orjson.dumps(line),
            route="small",
            route_after_failure=way.route_after_failure,
            retry_on_route=way.retry_on_route,
        )
        return way.end(outcome)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return what each route has learned: good and bad outcomes."""
        return {route.name: route.take_counts() for route in self.router if route.name in ROUTES}


def test_a_part_that_is_too_long_goes_whole_to_the_fallback() -> None:
    """All that follows is made there too; both routes learn of their last call."""
    attempt = Attempt()

    outcome = attempt.run()

    assert isinstance(outcome, Succeeded)
    assert min(attempt.small.lengths()) > 3000
    assert attempt.large.lengths()[: len(attempt.small.calls)] == attempt.small.lengths()
    assert max(attempt.large.lengths()) > 3000
    assert attempt.counts() == {"small": (1, 0), "large": (1, 0)}
    assert attempt.is_idle


def test_a_part_that_the_last_route_refuses_is_split_there() -> None:
    """No call is made without a start, and the route learns that its calls are answered."""
    attempt = Attempt()
    attempt.large.most_chars = 3000

    outcome = attempt.run()

    assert isinstance(outcome, Succeeded)
    assert min(attempt.large.lengths()) < 3000 < max(attempt.large.lengths())
    assert all(attempt.small.known + attempt.large.known)
    assert attempt.counts() == {"small": (1, 0), "large": (1, 0)}
    assert attempt.is_idle


def test_a_part_is_split_at_once_if_the_task_may_not_leave_its_route() -> None:
    """The fallback is outside of `routes_allowed`."""
    attempt = Attempt("small")

    outcome = attempt.run()

    assert isinstance(outcome, Succeeded)
    assert attempt.large.calls == []
    assert all(attempt.small.known)
    assert attempt.counts() == {"small": (1, 0), "large": (0, 0)}


def test_a_part_is_not_split_while_the_fallback_has_no_room() -> None:
    """The task waits, uncounted, and begins on the fallback, as any other task does."""
    attempt = Attempt()
    while not attempt.router.closed("large", attempt.now_s):
        ticket = attempt.router.begin("large", 9, attempt.now_s)
        assert ticket is not None
        attempt.router.ended(ticket, failed(), attempt.now_s)

    outcome = attempt.run()

    assert isinstance(outcome, Snooze)
    assert outcome.failure.error_class == ErrorClass.TOO_LONG
    assert outcome.failure.text.startswith("part 1 of")
    assert min(attempt.small.lengths()) > 3000
    assert attempt.delivery.own_route == "large"
