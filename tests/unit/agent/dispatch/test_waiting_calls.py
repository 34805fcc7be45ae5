"""Which tasks are asked for."""

from dataclasses import replace

import pytest

from docllm.agent.dispatch.waiting_calls import WaitingCalls
from docllm.agent.execution.admission import Admission
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.quota.estimate import CallSize
from docllm.agent.routes import RoutePlan
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import Config, LLMConfig
from docllm.schemas.settings.quota import QuotaLimits, TenantConfig
from tests.support.doubles import double_of
from tests.support.routes import ROUTE
from tests.support.slots import claimed, quota_gate_of

CONFIG = Config(llm=LLMConfig(base_url="http://h/v1", model="m", limits=QuotaLimits(tpm=6000)))


class Ready:
    """So many tasks that are ready, and so many free slots."""

    def __init__(
        self,
        ready: int,
        room: int,
        *,
        leaving: bool = False,
        config: Config = CONFIG,
        busy: int = 1,
    ) -> None:
        self.gate = quota_gate_of(config, SystemClock())
        self.table = InFlightTable(limits=InFlightLimits())
        for number in range(ready):
            delivery = claimed(number, 0.0)
            delivery.row, delivery.size = None, CallSize(input_bytes=400 + 4 * number)
            self.table.queue_for_claim(delivery)
        self.fallbacks: dict[str, list[str]] = {}
        self.full: set[int] = set()
        admission = double_of(
            Admission,
            room=lambda: room,
            leaving=leaving,
            is_type_full=lambda delivery: delivery.task_id in self.full,
            busy_routes=lambda: {ROUTE: busy},
            fallbacks=lambda route: self.fallbacks.get(route, []),
        )
        admission.slots = 1
        self.waiting_calls = WaitingCalls(table=self.table, admission=admission, quotas=self.gate)

    def asked(self) -> list[int]:
        """Return the prompt tokens of the waiting calls that the store gets."""
        self.waiting_calls.update(1.0)
        quotas = list(self.gate.quotas.with_news(1.0))
        return (
            [call.charge.tokens_in for call in quotas[0].next_request(1.0).waiting]
            if quotas
            else []
        )


def test_the_next_tasks_are_asked_for() -> None:
    """There are as many as free slots, the next first."""
    assert Ready(5, 3).asked() == [100, 101, 102]
    assert Ready(2, 3).asked() == [100, 101]


def test_slots_in_which_calls_end_are_soon_free() -> None:
    """With short calls, more begin between two questions than there are slots."""
    ready = Ready(5, 0)
    ready.gate._ended[ROUTE] = 2

    assert ready.asked() == [100, 101]


@pytest.mark.parametrize("busy", [0, 1])
def test_a_route_without_its_part_of_the_slots_asks_before_one_is_free(busy: int) -> None:
    """The tasks of other routes would take each slot at once, before a grant has come."""
    assert Ready(5, 0, busy=busy).asked() == [100][busy:]


@pytest.mark.parametrize(("room", "seats"), [(0, 1), (3, 3)])
def test_the_next_tenant_has_a_place_before_a_slot_is_free(room: int, seats: int) -> None:
    """With one slot and long calls, a place asked for in a free slot would come too late.

    Nothing of the account is asked for so early: it would go to waste.
    """
    ready = Ready(5, room, config=replace(CONFIG, tenants={"acme": TenantConfig(in_flight=9)}))
    for delivery in ready.table.next_for(ROUTE, 5):
        delivery.tenant = "acme"
    ready.waiting_calls.update(1.0)

    asked = {
        quota.key.partition("-")[0]: len(quota.next_request(1.0).waiting)
        for quota in ready.gate.quotas.with_news(1.0)
    }

    assert asked.pop("tenant") == seats
    assert sum(asked.values()) == room


def test_an_agent_that_leaves_asks_for_nothing() -> None:
    """The agent's last waiting calls are taken back."""
    assert Ready(5, 3, leaving=True).asked() == []


def test_waiting_calls_end_with_the_last_task() -> None:
    """A route without tasks is told once, and then no more."""
    ready = Ready(1, 3)
    assert ready.asked() == [100]
    ready.table.take_ready(1, lambda _: 1)
    assert ready.asked() == []


def test_the_tasks_of_a_closed_route_are_asked_for_on_its_fallback() -> None:
    """Without grants on the fallback, the tasks would wait as long as the stop lasts."""
    ready = Ready(0, 3)
    for number in range(5):
        delivery = claimed(number, 0.0)
        delivery.plan, delivery.size = RoutePlan("closed"), CallSize(input_bytes=400)
        ready.table.queue_for_claim(delivery)

    assert ready.asked() == []
    ready.fallbacks["closed"] = ["other", ROUTE]  # some of them may be bound to the second one
    assert ready.asked() == [100, 100, 100]


def test_a_task_whose_type_is_full_is_asked_for_behind_others() -> None:
    """With one free slot, nothing else would be asked for."""
    ready = Ready(3, 1)
    ready.full = {0, 1}
    assert ready.asked() == [102]
    ready.full = {0, 1, 2}
    assert ready.asked() == [100]


def test_diverted_tasks_take_turns_with_those_of_the_fallback() -> None:
    """With one free slot the others' grants may be too small for them."""
    ready = Ready(3, 1)
    ready.fallbacks["closed"] = [ROUTE]
    diverted = claimed(9, 0.0)
    diverted.plan, diverted.size = RoutePlan("closed"), CallSize(input_bytes=2000)
    ready.table.queue_for_claim(diverted)

    assert {*ready.asked(), *ready.asked()} == {100, 500}


def test_a_crash_suspect_of_a_closed_route_is_asked_for_on_its_fallback() -> None:
    """Without a grant it would wait as long as the stop lasts."""
    ready = Ready(0, 3)
    ready.fallbacks["closed"] = [ROUTE]
    suspect = claimed(8, 0.0, lease_losses=2)
    suspect.plan, suspect.size = RoutePlan("closed"), CallSize(input_bytes=2000)
    ready.table.queue_for_claim(suspect)

    assert ready.asked() == [500]


def test_a_crash_suspect_is_asked_for_before_other_tasks() -> None:
    """One runs at a time; without a grant it would never run."""
    ready = Ready(2, 3)
    for number in (8, 9):
        suspect = claimed(number, 0.0, lease_losses=2)
        suspect.size = CallSize(input_bytes=2000)
        ready.table.queue_for_claim(suspect)

    assert ready.asked() == [500, 100, 101]
