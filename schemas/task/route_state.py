"""The state of a route in one agent."""

from enum import StrEnum


class RouteState(StrEnum):
    """Whether a route takes calls; the names are shown to people and programs."""

    OPEN = "open"
    STOPPED = "stopped"  # it takes no calls but probes, because calls failed
    PARKED = "parked"  # stopped until a person acts: no money, or a wrong key, model or address
