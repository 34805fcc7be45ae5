"""Bugs of fallbacks: tasks of a closed route go where they may not, or get lost on the way."""

from collections import Counter

from docllm.agent.dispatch.claimer import ReadySelection, RoomOf
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.routes.plan import RoutePlan
from tests.simulation.bugs.bug import Bug, replaced
from tests.simulation.bugs.stages import FALLBACKS


def _anywhere(_self: RoutePlan, _route: str) -> bool:
    return True


def _unbound_forgotten(
    self: ReadySelection, route: str, most: int, room: RoomOf, counted: Counter[str]
) -> list[Delivery]:
    diverted: list[Delivery] = []
    for delivery in self._table.take_ready_for(route, most):
        following = [name for name in self._admission.fallbacks(route, delivery) if room(name) > 0]
        if following:
            delivery.route = following[0]
            if self._admission.reserve_call(delivery):
                counted[following[0]] += 1
                diverted.append(delivery)
    return diverted


BUGS = {
    "a fallback leaves the allowed routes": Bug(
        "P4", replaced(RoutePlan, "allows", _anywhere), FALLBACKS
    ),
    "a task that may not leave its route is forgotten": Bug(
        "P1", replaced(ReadySelection, "_divert", _unbound_forgotten), FALLBACKS
    ),
}
