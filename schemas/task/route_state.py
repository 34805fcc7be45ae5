"""The state of a route in one agent, and the length of its name."""

from enum import StrEnum

MAX_ROUTE_CHARS = 64  # of a route's name


class RouteState(StrEnum):
    """Whether a route takes calls; the names are shown to people and programs."""

    OPEN = "open"
    STOPPED = "stopped"  # it takes no calls but probes, because calls failed
    PARKED = "parked"  # stopped until a person acts: no money, or a wrong key, model or address
