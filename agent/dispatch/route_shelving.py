"""Shelves routes that take no calls, so that the agent can read on.

The deliveries of a shelved route wait without their bodies, and after a while they go to the
longest tier. Otherwise one closed route's deliveries would fill the agent's memory and block the
tasks of all other routes.
"""

from collections.abc import Container
from dataclasses import dataclass

from docllm.agent.execution.admission import Admission
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.table import InFlightTable


@dataclass(kw_only=True, eq=False)
class RouteShelving:
    """Knows which routes have been closed for long."""

    table: InFlightTable
    admission: Admission
    limits: InFlightLimits

    def __post_init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def update(self, now_s: float, *, full: bool) -> None:
        """Shelve the routes that have been closed for some seconds, and unshelve open ones.

        Routes are shelved only while the agent is `full`.
        """
        waited_for = self.table.ready.routes
        self._since_s = {
            route: self._since_s.get(route, now_s)
            for route in waited_for
            if self.admission.tasks_wait_for(route)
        }
        for route in waited_for:
            if route not in self._since_s:
                self.table.ready.unshelve(route)
            elif full and now_s - self._since_s[route] >= self.limits.shelve_after_s:
                self.table.shelve(route)

    def routes_to_move(self, now_s: float, stuck: Container[str]) -> list[str]:
        """Return the routes whose deliveries must go to a tier.

        Such a route has been closed for a minute, and other tasks wait behind its deliveries:
        either many of its deliveries wait while another route is open, or one of them blocks a wide
        span (`stuck` contains the route).
        """
        closed_for_long = [
            route
            for route, since_s in self._since_s.items()
            if now_s - since_s >= self.limits.move_after_s
        ]
        crowded = [
            route for route in closed_for_long if self.table.ready.count(route) > self.limits.crowd
        ]
        in_use = {*self.table.ready.routes, *self.admission.busy_routes()} if crowded else ()
        if all(self.admission.tasks_wait_for(route) for route in in_use):
            crowded = []
        return [route for route in closed_for_long if route in crowded or route in stuck]
