"""Bugs of turns: a lane or a tenant starves, or takes more than its cap."""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any

from docllm.agent.inflight.turns import LaneTurns, MayTake, TenantTurns
from docllm.agent.quota.grants import LimitKind, WaitingCall
from docllm.agent.quota.quotas import Quotas
from docllm.schemas.task.record.lanes import TURNS, Lane
from tests.simulation.bugs import stages
from tests.simulation.bugs.bug import Bug, patched, replaced
from tests.simulation.bugs.quotas import no_limit_of


def _strictly(_self: LaneTurns, lanes: Collection[Lane]) -> Lane:
    return max(lanes, key=TURNS.__getitem__)


def _first_come() -> AbstractContextManager[Any]:
    pop = TenantTurns._pop_of

    def keeping(self: TenantTurns, tenant: str, may: MayTake) -> Any:
        delivery = pop(self, tenant, may)
        self._queues[tenant].credit += 1
        return delivery

    return patched(TenantTurns, "_pop_of", keeping)


def _not_for_later() -> AbstractContextManager[Any]:
    set_waiting = Quotas.set_waiting

    def soon(
        self: Quotas, route: str, waiting: Sequence[WaitingCall], now_s: float, **_: Any
    ) -> None:
        set_waiting(self, route, waiting, now_s)

    return patched(Quotas, "set_waiting", soon)


BUGS = {
    "the urgent lane goes first as long as it has work": Bug(
        "P1", replaced(LaneTurns, "choose", _strictly), stages.TURNS
    ),
    "a tenant's tasks run until none is left": Bug(
        "P1", _first_come, {**stages.TURNS, "tasks": 80, "priorities": (5,)}
    ),
    "a tenant with a cap has a place only while a slot is free": Bug(
        "P1", _not_for_later, stages.CAPPED
    ),
    "a tenant's cap is not kept": Bug(
        "P5",
        no_limit_of(LimitKind.TENANT),
        {**stages.CAPPED, "slots": 4},
    ),
}
