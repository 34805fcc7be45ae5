"""Selects the ready deliveries to claim next, on their own routes or on fallback routes.

The tasks of a closed route do not wait for it if a fallback of it takes calls. A stopped route
still gets a task when a probe is due: the probe shows whether the route works again.
"""

import logging
from collections import Counter
from collections.abc import Callable

from docllm.agent.execution.admission import Admission
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.table import InFlightTable

log = logging.getLogger(__name__)

RoomOf = Callable[[str], int]

# At about so many tasks that may not leave their route, the search for others ends for this time.
MAX_STUCK = 30


class ReadySelection:
    """Takes deliveries from the ready queue, by the room on each route."""

    def __init__(self, *, table: InFlightTable, admission: Admission) -> None:
        self._table = table
        self._admission = admission
        self._diverted_first = False
        self._logged_routes: set[str] = set()

    def take(self, limit: int) -> list[Delivery]:
        """Take up to `limit` deliveries to claim; their `route` is the one to run on.

        The first call of each is reserved within the limits of its account and tenant; deliveries
        without room on their own routes stay queued. A fallback's own tasks and diverted
        tasks take turns.
        """
        selected: list[Delivery] = []
        counted: Counter[str] = Counter()

        def room(route: str) -> int:
            return max(0, self._admission.room_for(route, counted[route]))

        sources = [self._own, self._diverted]
        self._diverted_first = not self._diverted_first
        for source in reversed(sources) if self._diverted_first else sources:
            if len(selected) < limit:
                selected += source(limit - len(selected), room, counted)
        return selected

    def take_ahead(self, limit: int) -> list[Delivery]:
        """Take up to `limit` deliveries to claim before a slot is free for them.

        None is taken after a delivery in whose way is more than the slot, although its turn has
        come: it gets the next slot.
        """
        may_go_on = True

        def needs_only_slot(delivery: Delivery) -> bool:
            nonlocal may_go_on
            may_go_on = may_go_on and self._admission.needs_only_slot(delivery)
            return may_go_on

        return self._table.take_ready(limit, lambda _route: limit, needs_only_slot)

    def _own(self, limit: int, room: RoomOf, counted: Counter[str]) -> list[Delivery]:
        """Take deliveries that run on their own routes."""
        selected = self._table.take_ready(limit, room, self._admission.reserve_call)
        counted.update(delivery.route for delivery in selected)
        return selected

    def _diverted(self, limit: int, room: RoomOf, counted: Counter[str]) -> list[Delivery]:
        """Take deliveries of closed routes that may run on a fallback now."""
        selected: list[Delivery] = []
        for route in self._table.ready.routes:
            following = self._admission.fallbacks(route)
            if not following and not self._admission.tasks_wait_for(route):
                self._logged_routes.discard(route)
            most = min(
                limit - len(selected),
                self._table.ready.count(route) - room(route),  # these may be due as probes
                sum(map(room, following)) if following else 0,
            )
            if most > 0:
                selected += self._divert(route, most, room, counted)
        return selected

    def _divert(
        self, route: str, limit: int, room: RoomOf, counted: Counter[str]
    ) -> list[Delivery]:
        """Take up to `limit` deliveries that may leave their closed route.

        Those that have no fallback with room go behind their tenant's other tasks, and each has
        used up one of the tenant's turns on this route.
        """
        diverted: list[Delivery] = []
        stuck: list[Delivery] = []

        def divert_or_pass(delivery: Delivery) -> bool:
            """Give a delivery its fallback; False if one has room, but the limits do not."""
            following = self._admission.fallbacks(route, delivery)
            target = next((name for name in following if room(name) > 0), None)
            if target is None:
                stuck.append(delivery)  # taken too, so that those behind it are seen
                return True
            delivery.route = target
            if not self._admission.reserve_call(delivery):
                delivery.route = route
                return False
            counted[target] += 1
            diverted.append(delivery)
            return True

        may_find_more = True
        while may_find_more and len(stuck) < MAX_STUCK and len(diverted) < limit:
            left = limit - len(diverted)
            may_find_more = bool(self._table.take_ready_for(route, left, divert_or_pass))
        for delivery in stuck:
            self._table.queue_for_claim(delivery, was_waiting=True)
        self._admission.note_no_way_out(route, has_no_way_out=bool(stuck) and not diverted)
        for delivery in diverted:
            if not self._admission.closed(delivery.route):  # else it is a probe
                self._log_once(route, delivery.route)
        return diverted

    def _log_once(self, route: str, target: str) -> None:
        if route not in self._logged_routes:
            log.info("tasks of route %s run on %s until it takes calls again", route, target)
            self._logged_routes.add(route)
