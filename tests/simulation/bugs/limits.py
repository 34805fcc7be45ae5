"""Bugs that only an agent with small limits shows: its memory is never full otherwise."""

from contextlib import AbstractContextManager
from typing import Any

from docllm.agent.dispatch.backpressure import Backpressure
from docllm.agent.inflight import table
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.turns import MayTake, always
from tests.simulation.bugs.bug import Bug, patched, replaced
from tests.simulation.bugs.stages import CLOSED_ROUTE, SMALL


def _drop_without_count(_self: table.InFlightTable, delivery: Delivery) -> None:
    delivery.value = None


def _never_resumed() -> AbstractContextManager[Any]:
    update = Backpressure.update

    def stuck(self: Backpressure) -> None:
        if not self.full:
            update(self)

    return patched(Backpressure, "update", stuck)


def _shelved_without_question(self: table.InFlightTable, delivery: Delivery) -> bool:
    if self.ready.is_shelved(delivery.route):
        if delivery.row is None:
            return False
        self.drop_bodies(delivery)
    return True


def _rest_of_a_move_forgotten() -> AbstractContextManager[Any]:
    take = table.InFlightTable.take_ready_for

    def first(
        self: table.InFlightTable, route: str, limit: int, may: MayTake = always
    ) -> list[Delivery]:
        deliveries = take(self, route, limit, may)
        return deliveries[:1] if may is always else deliveries  # a fallback chooses by `may`

    return patched(table.InFlightTable, "take_ready_for", first)


def _rest_of_a_page_forgotten() -> AbstractContextManager[Any]:
    take = table.InFlightTable._take_asked

    def first(self: table.InFlightTable, limit: int) -> list[Delivery]:
        return take(self, len(self._to_ask))[:limit]

    return patched(table.InFlightTable, "_take_asked", first)


BUGS = {
    "a dropped body still counts": Bug(
        "P1", replaced(table.InFlightTable, "_drop", _drop_without_count), SMALL
    ),
    "a full agent reads no further": Bug("P1", _never_resumed, SMALL),
    "shelving forgets a record": Bug(
        "P1", replaced(table.InFlightTable, "_may_wait", _shelved_without_question), CLOSED_ROUTE
    ),
    "a move forgets the rest of its page": Bug("P1", _rest_of_a_move_forgotten, CLOSED_ROUTE),
    "a question forgets the rest of its page": Bug("P1", _rest_of_a_page_forgotten, SMALL),
}
