"""Selects the ready deliveries to claim next, on their own routes or on fallback routes.

The tasks of a closed route do not wait for it if a fallback of it takes calls. A stopped route
still gets a task when a probe is due: the probe shows whether the route works again.
"""

import logging
from collections import Counter
from collections.abc import Callable

from agent.execution.admission import Admission
from agent.inflight.delivery import Delivery
from agent.inflight.table import InFlightTable

log = logging.getLogger(__name__)

Room = Callable[[str], int]


class ReadySelection:
    """Takes deliveries from the ready queue, by the room on each route."""

    def __init__(self, *, table: InFlightTable, admission: Admission) -> None:
        self._table = table
        self._admission = admission
        self._diverted_first = False
        self._told: set[str] = set()

    def take(self, limit: int) -> list[Delivery]:
        """Take up to `limit` deliveries to claim; their `route` is the one to run on.

        Each holds its turn within the limits of its account and tenant; those without room keep
        their place. A fallback's own tasks and those that come to it take turns.
        """
        taken: list[Delivery] = []
        counted: Counter[str] = Counter()

        def room(route: str) -> int:
            return max(0, self._admission.room_for(route, counted[route]))

        sources = [self._own, self._diverted]
        self._diverted_first = not self._diverted_first
        for source in reversed(sources) if self._diverted_first else sources:
            if len(taken) < limit:
                taken += source(limit - len(taken), room, counted)
        return taken

    def _own(self, limit: int, room: Room, counted: Counter[str]) -> list[Delivery]:
        """Take deliveries that run on their own routes."""
        taken = self._table.take_ready(limit, room, self._admission.hold_turn)
        counted.update(delivery.route for delivery in taken)
        return taken

    def _diverted(self, limit: int, room: Room, counted: Counter[str]) -> list[Delivery]:
        """Take deliveries of closed routes that may run on a fallback now."""
        taken: list[Delivery] = []
        for route in self._table.routes:
            following = self._admission.fallbacks(route)
            if not following:
                self._told.discard(route)
            most = min(
                limit - len(taken),
                self._table.ready_for(route) - room(route),  # these may be due as probes
                sum(map(room, following)) if following else 0,
            )
            if most > 0:
                taken += self._divert(route, most, room, counted)
        return taken

    def _divert(self, route: str, most: int, room: Room, counted: Counter[str]) -> list[Delivery]:
        """Take up to `most` deliveries that may leave their closed route; put the others back."""

        def may(delivery: Delivery) -> bool:
            following = self._admission.fallbacks(route, delivery)
            target = next((name for name in following if room(name) > 0), None)
            if target is None:
                return True  # and put it back, so that those behind it are seen
            delivery.route = target
            if not self._admission.hold_turn(delivery):
                delivery.route = route
                return False
            counted[target] += 1
            return True

        waiting = self._table.take_ready_for(route, most, may)
        diverted = [delivery for delivery in waiting if delivery.route != route]
        for delivery in waiting:
            if delivery.route == route:
                self._table.queue_for_claim(delivery, back=True)
            else:
                self._tell(route, delivery.route)
        self._admission.note_bound(route, bound=bool(waiting) and not diverted)
        return diverted

    def _tell(self, route: str, target: str) -> None:
        if route not in self._told:
            log.info("tasks of route %s run on %s until it takes calls again", route, target)
            self._told.add(route)
