"""Lets the agent read on while a route takes no calls: its entries drop their bodies, and after a while go to the longest tier.

Without this the entries of one route would fill the agent's memory, and the tasks of all others would wait behind them.
"""

from collections.abc import Callable, Container, Iterable

from agent.entries import Entries
from agent.partitions import SPAN

PARK_AFTER_S, MOVE_AFTER_S = 5.0, 60.0
MANY = SPAN // 2


class Parking:
    """Which routes are closed for long. `closed` says whether a route takes no calls but probes, `running` on which ones calls run."""

    def __init__(self, *, entries: Entries, closed: Callable[[str], bool], running: Callable[[], Iterable[str]]) -> None:
        self._entries = entries
        self._closed = closed
        self._running = running
        self._since_s: dict[str, float] = {}

    def look(self, now_s: float, *, full: bool) -> None:
        """Park the routes that are closed for some seconds once the agent is full, and take back those that are open."""
        waited_for = self._entries.routes
        self._since_s = {route: self._since_s.get(route, now_s) for route in waited_for if self._closed(route)}
        for route in waited_for:
            if route not in self._since_s:
                self._entries.unpark(route)
            elif full and now_s - self._since_s[route] >= PARK_AFTER_S:
                self._entries.park(route)

    def overflowing(self, now_s: float, stuck: Container[str]) -> list[str]:
        """Return the routes whose entries are to go to a tier: closed for a minute, and others wait behind them.

        Either many wait while another route is open, or one of them keeps a wide span from moving on: its route is `stuck`.
        """
        long = [route for route, since_s in self._since_s.items() if now_s - since_s >= MOVE_AFTER_S]
        many = [route for route in long if self._entries.ready_for(route) > MANY]
        others = {*self._entries.routes, *self._running()} if many else ()
        moved = many if any(not self._closed(route) for route in others) else []
        return [route for route in long if route in moved or route in stuck]
