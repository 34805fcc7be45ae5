"""Tasks of a closed route run on its fallback, within their bounds, and go back afterwards."""

from dataclasses import replace

import pytest

from docllm.agent.dispatch.claimer import MAX_STUCK, ReadySelection
from docllm.agent.execution.admission import Admission
from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.agent.execution.start_decisions import AttemptStart, NotStarted
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports.outcome import Outcome
from docllm.agent.quota.grants import Charge, LimitKind, QuotaAnswer, WaitingCall
from docllm.agent.routes import Router
from docllm.schemas.settings.config import AgentConfig, Config, LLMConfig, RouteConfig, Trigger
from docllm.schemas.settings.quota import TenantConfig
from docllm.schemas.task.record.envelope import Publication
from tests.support.clock import HandClock
from tests.support.routes import GOOD, call, failed, permitted, routes, snoozed
from tests.support.slots import (
    PARTITION,
    RAISED,
    SlotsHarness,
    claimed,
    ending,
    quota_gate_of,
)

ROUTES = {
    "a": RouteConfig(fallback=("b", "c"), fallback_on=tuple(Trigger)),
    "b": RouteConfig(model="m"),
    "c": RouteConfig(model="n"),
}
SLOTS = 8


class Waiting:
    """One agent of eight slots whose ready queue a test fills."""

    def __init__(self) -> None:
        self.router: Router = routes(SLOTS, routes=ROUTES)
        self.harness = SlotsHarness(self.router, ending(GOOD))
        self.clock = self.harness.clock = HandClock()  # type: ignore[assignment]
        self.harness.guards.replace([])
        self.admission: Admission = self.harness.admission(CrashSuspects())
        self.table = InFlightTable(limits=InFlightLimits())
        self.selection = ReadySelection(table=self.table, admission=self.admission)
        self.number = 0

    def cap(self, tenant: str, seats: int) -> None:
        """Let a tenant have at most so many calls at once; the grant store allows them."""
        config = Config(tenants={tenant: TenantConfig(in_flight=seats)})
        self.harness.quotas = gate = quota_gate_of(config, self.clock)
        self.admission = self.harness.admission(CrashSuspects())
        self.selection = ReadySelection(table=self.table, admission=self.admission)
        now_s = self.clock.now_s()
        ask = WaitingCall(
            charge=Charge(tokens_in=0, tokens_out=0), limits=((LimitKind.TENANT, tenant),)
        )
        gate.quotas.set_waiting("a", [ask], now_s)
        (member,) = gate.quotas.with_news(now_s)
        request = member.next_request(now_s)
        answer = QuotaAnswer(
            granted=(True,), seats=seats, paused_s=0.0, accepted_share=1.0, agents=1, binding=""
        )
        member.apply_answer(request, answer, now_s, now_s)

    def arrive(self, route: str, count: int, *allowed: str, tenant: str = "default") -> None:
        """Add ready tasks of this route, within these bounds."""
        for _ in range(count):
            self.number += 1
            plan = self.router.naming.plan_of_route(route).within(allowed or None)
            delivery = Delivery(
                partition=PARTITION,
                offset=self.number,
                timestamp_ms=0,
                publication=Publication(
                    ledger="ledger", group="g", batch="b", task_id=self.number, fence=0
                ),
                value=b"{}",
                digest=b"d" * 16,
                route=plan.first,
                plan=plan,
                tenant=tenant,
            )
            self.table.add(delivery, 0.0, redelivered=False)

    def change_settings(self, **changed: RouteConfig) -> None:
        """Use changed settings of these routes, as a running agent does."""
        self.router.apply(
            Config(
                agent=AgentConfig(slots=SLOTS),
                llm=LLMConfig(base_url="http://llm", timeout_s=60.0),
                routes=ROUTES | changed,
            ),
            self.clock.now_s(),
        )
        self.table.renew_plans(self.router.naming.renewed)

    def close(self, route: str, outcome: Outcome | None = None) -> None:
        """Let failures close a route."""
        for _ in range(1000):
            if self.router.closed(route, self.clock.now_s()):
                return
            call(self.router, outcome or failed(), self.clock.now_s(), name=route)
        raise AssertionError("the route stays open")

    def taken(self, limit: int = SLOTS) -> list[str]:
        """Take deliveries; return their routes."""
        found = self.selection.take(limit)
        assert all(delivery.state is DeliveryState.CLAIMING for delivery in found)
        return sorted(delivery.route for delivery in found)


def test_tasks_stay_on_an_open_route() -> None:
    """Nothing is diverted while the route takes calls."""
    waiting = Waiting()
    waiting.arrive("a", 3)
    waiting.arrive("b", 2)

    assert waiting.taken() == ["a"] * 3 + ["b"] * 2


@pytest.mark.parametrize("outcome", [failed(), snoozed("MONEY"), snoozed("AUTH")])
def test_tasks_of_a_route_that_stops_run_on_its_fallback_at_once(outcome: Outcome) -> None:
    """Whatever closed it, all that wait go on, up to the room on the fallback."""
    waiting = Waiting()
    waiting.arrive("a", 20)
    waiting.close("a", outcome)

    assert waiting.taken() == ["b"] * SLOTS
    assert waiting.table.ready.count("a") == 20 - SLOTS


def test_a_probe_still_goes_to_the_stopped_route_and_new_tasks_go_back() -> None:
    """A probe shows when the stopped route is well again."""
    waiting = Waiting()
    waiting.arrive("a", 4)
    waiting.close("a")
    waiting.clock.at_s += 10.0

    assert waiting.taken() == ["a", "b", "b", "b"]
    probe = permitted(waiting.router, waiting.clock.now_s(), name="a")
    waiting.router.ended(probe, GOOD, waiting.clock.now_s())
    waiting.arrive("a", 3)

    assert set(waiting.taken()) == {"a"}


def test_the_last_waiting_task_is_kept_for_a_probe_that_is_due() -> None:
    """A lone task goes to its own route as the probe."""
    for _ in range(2):
        waiting = Waiting()
        waiting.arrive("a", 1)
        waiting.close("a")
        waiting.clock.at_s += 10.0

        assert waiting.taken() == ["a"]


def test_the_next_route_of_the_chain_is_taken_if_the_first_is_closed_or_full() -> None:
    """A full fallback passes on what it has no room for."""
    waiting = Waiting()
    waiting.arrive("a", 5)
    waiting.close("a")
    waiting.close("b")

    assert waiting.taken() == ["c"] * 5


def test_tasks_wait_if_every_fallback_is_closed() -> None:
    """The tasks keep their place on their own route."""
    waiting = Waiting()
    waiting.arrive("a", 5)
    for route in "abc":
        waiting.close(route)

    assert waiting.taken() == []
    assert waiting.table.ready.count("a") == 5
    assert waiting.admission.tasks_wait_for("a")


def test_a_fallback_that_paused_is_tried_by_the_tasks_that_wait_for_it() -> None:
    """It has no tasks of its own, so nothing else shows that it takes calls again."""
    waiting = Waiting()
    waiting.arrive("a", 9)
    waiting.close("a")
    waiting.close("b", snoozed("RATE", 2.0))
    waiting.close("c")
    assert waiting.taken() == []

    waiting.clock.at_s += 1.0
    assert waiting.taken() == ["b"]
    assert waiting.admission.tasks_wait_for("a")
    trial = permitted(waiting.router, waiting.clock.now_s(), name="b")
    assert waiting.taken() == []
    waiting.router.ended(trial, GOOD, waiting.clock.now_s())

    assert set(waiting.taken()) == {"b"}
    assert not waiting.admission.tasks_wait_for("a")


def test_a_fallback_that_stopped_is_tried_by_the_tasks_that_wait_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both providers were away, and only that of the fallback comes back."""
    caplog.set_level("INFO")
    waiting = Waiting()
    waiting.arrive("a", 9)
    for route in "abc":
        waiting.close(route)
    waiting.clock.at_s += 10.0

    assert waiting.taken() == ["a", "b", "c"]
    now_s = waiting.clock.now_s()
    probes = {name: permitted(waiting.router, now_s, name=name) for name in "ab"}
    waiting.router.ended(probes["a"], failed(), now_s)
    assert "run on b" not in caplog.text
    waiting.router.ended(probes["b"], GOOD, now_s)

    assert waiting.taken(1) == ["b"]
    assert "tasks of route a run on b" in caplog.text
    assert not waiting.admission.tasks_wait_for("a")


def test_a_rate_limit_is_waited_for_and_a_lack_of_capacity_is_not() -> None:
    """Only failures that are named divert tasks."""
    for error_class, found in (("RATE", []), ("CAPACITY", ["b"] * 3)):
        waiting = Waiting()
        waiting.arrive("a", 3)
        waiting.close("a", snoozed(error_class))
        assert waiting.taken() == found


def test_no_task_leaves_its_bounds() -> None:
    """Tasks that may not leave wait, the others pass them, and shelving sees who waits."""
    waiting = Waiting()
    waiting.arrive("a", 10, "a")
    waiting.close("a")
    assert waiting.taken() == []
    assert waiting.admission.tasks_wait_for("a")
    (reason,) = waiting.admission.reasons(waiting.clock.now_s())
    assert (reason.name, reason.fallback) == ("a", ""), "no task runs on a fallback"
    waiting.arrive("a", 2)
    waiting.arrive("a", 2, "a", "c")

    found = waiting.taken() + waiting.taken() + waiting.taken()

    assert sorted(found) == ["b", "b", "c", "c"]
    assert waiting.table.ready.count("a") == 10


def test_a_route_whose_tasks_go_on_does_not_count_as_closed() -> None:
    """Tasks that go on elsewhere are neither shelved nor moved to a tier."""
    waiting = Waiting()
    waiting.arrive("a", 1)
    waiting.close("a")
    waiting.taken()

    assert not waiting.admission.tasks_wait_for("a")
    assert not waiting.router.waits("a", waiting.clock.now_s())
    (reason,) = waiting.router.reasons(waiting.clock.now_s())
    assert (reason.name, reason.fallback) == ("a", "b")


def test_no_task_is_diverted_to_a_route_where_a_guard_holds_its_batch_back() -> None:
    """The task waits for its own route, and is not moved to a tier for the fallback's guard."""
    waiting = Waiting()
    guarded = replace(RAISED, route="b")
    waiting.harness.guards.replace([guarded])
    waiting.close("a")
    known, unknown = (claimed(number, waiting.clock.now_s()) for number in (1, 2))
    for delivery in (known, unknown):
        delivery.plan = waiting.router.naming.plan_of_route("a").within(["a", "b"])
        delivery.digest = b"d" * 16
    row, unknown.row = unknown.row, None
    for delivery in (known, unknown):
        waiting.table.add(delivery, 0.0, redelivered=False)

    assert waiting.selection.take(SLOTS) == [unknown]
    unknown.row = row
    assert waiting.admission.decide(unknown) is NotStarted.ROUTE
    waiting.table.queue_for_claim(unknown)
    assert waiting.taken() == []
    assert waiting.admission.tasks_wait_for("a")

    waiting.harness.guards.replace([guarded], [unknown.task_id])
    assert waiting.selection.take(SLOTS) == [unknown]
    assert isinstance(waiting.admission.decide(unknown), AttemptStart)


def test_neither_the_fallbacks_own_tasks_nor_the_others_starve() -> None:
    """With one free slot at a time they take turns."""
    waiting = Waiting()
    waiting.arrive("a", 50)
    waiting.arrive("b", 50)
    waiting.close("a")

    for _ in range(40):
        waiting.taken(1)

    assert waiting.table.ready.count("a") == waiting.table.ready.count("b") == 30


def test_what_is_taken_counts_for_the_room_of_the_fallback() -> None:
    """The own tasks and the diverted ones together fit the slots."""
    waiting = Waiting()
    waiting.arrive("a", 50)
    waiting.arrive("b", 50)
    waiting.close("a")
    for _ in range(2):
        assert waiting.taken(100).count("b") == SLOTS


@pytest.mark.parametrize("closed", [False, True])
def test_a_capped_tenant_keeps_its_order_and_takes_no_place_of_others(*, closed: bool) -> None:
    """A capped tenant keeps its order on a fallback, too."""
    waiting = Waiting()
    waiting.cap("acme", 2)
    for _ in range(50):
        waiting.arrive("a", 2, tenant="acme")
        waiting.arrive("a", 1)
    if closed:
        waiting.close("a")
    started: list[Delivery] = []

    for _ in range(5):
        taken = waiting.selection.take(SLOTS)
        assert len(taken) == SLOTS
        assert 1 <= sum(delivery.tenant == "acme" for delivery in taken) <= 2
        waiting.admission.release_calls(taken)  # as if their calls had ended
        started += taken

    for tenant in ("acme", "default"):
        order = [delivery.task_id for delivery in started if delivery.tenant == tenant]
        assert order == sorted(order)


def test_a_crash_suspect_is_claimed_for_a_fallback_too() -> None:
    """The suspect goes back to its own route once that takes calls."""
    waiting = Waiting()
    suspect = claimed(1, waiting.clock.now_s(), lease_losses=2)
    suspect.plan = waiting.router.naming.plan_of_route("a")
    waiting.table.add(suspect, 0.0, redelivered=False)
    waiting.table.queue_for_claim(suspect)
    waiting.close("a")

    assert waiting.admission.route_suspect(suspect)
    assert suspect.route == "b"
    waiting.close("b")
    waiting.close("c")
    assert not waiting.admission.route_suspect(suspect)
    waiting.router.resume("a", waiting.clock.now_s())
    assert waiting.admission.route_suspect(suspect)
    assert suspect.route == "a"


def test_waiting_tasks_use_a_fallback_that_the_settings_gained() -> None:
    """Their routes follow changed settings, also away from a fallback that is gone."""
    waiting = Waiting()
    waiting.arrive("b", 3)
    waiting.close("b")
    assert waiting.taken() == []

    waiting.change_settings(a=RouteConfig(), b=RouteConfig(model="m", fallback=("c",)))
    assert waiting.taken(2) == ["c", "c"]
    waiting.change_settings(b=RouteConfig(model="m"))
    assert waiting.taken() == []
    assert waiting.table.ready.count("b") == 1


def test_a_task_begins_on_its_own_route_again_once_its_next_route_is_no_fallback() -> None:
    """The route that refused it before is asked again; nothing else could take it."""
    waiting = Waiting()
    refused = claimed(1, waiting.clock.now_s())
    refused.plan, refused.next_route = waiting.router.naming.plan_of_route("a"), "b"
    waiting.table.add(refused, 0.0, redelivered=False)
    assert waiting.table.ready.count("b") == 1

    waiting.change_settings(a=RouteConfig())

    assert waiting.table.take_to_ask(waiting.clock.now_s(), SLOTS) == [refused]
    assert (refused.own_route, waiting.table.ready.count("b")) == ("a", 0)


def test_a_task_that_came_by_a_chain_goes_on_along_it() -> None:
    """The route where it waits has no fallback of its own; its other tasks stay there."""
    waiting = Waiting()
    waiting.arrive("b", 3)
    waiting.arrive("a", 2, "b", "c")
    waiting.close("b")

    found = waiting.taken() + waiting.taken()

    assert (found, waiting.table.ready.count("b")) == (["c", "c"], 3)
    assert waiting.admission.tasks_wait_for("b")
    (reason,) = waiting.router.reasons(waiting.clock.now_s())
    assert (reason.name, reason.fallback) == ("b", "")


def test_a_task_does_not_wait_for_all_that_may_not_leave_their_route() -> None:
    """With one free slot it would otherwise wait for as many checks as tasks are before it."""
    waiting = Waiting()
    waiting.arrive("a", MAX_STUCK, "a")
    waiting.arrive("a", 1)
    waiting.close("a")

    found = waiting.taken(1) + waiting.taken(1)

    assert (found, waiting.table.ready.count("a")) == (["b"], MAX_STUCK)
