"""Why a task waits in the ledger.

A task that is open and not running waits in one of three places: in an agent's memory, in the
ledger, or in a retry topic. `docs/explanation/waiting.md` has the table of all ways to wait.
"""

from collections.abc import Mapping
from enum import StrEnum

NO_ROUTE = ""  # the key of tasks that may take no route of the agent that met them
DEAD = "dead"  # the key, on screens, of joins that wait for a replay of dead tasks


class WaitReason(StrEnum):
    """Why a task waits in the ledger, in the column `reason` of `waiting`."""

    TIME = "TIME"
    ROUTE = "ROUTE"
    GUARD = "GUARD"
    TYPE = "TYPE"
    HOURS = "HOURS"
    CHILDREN = "CHILDREN"


def guard_key(batch_id: int, type_name: str) -> str:
    """Return the key of the tasks that wait for a guard of this batch and type, of any route.

    A task may have a guarded route as its fallback, so its guards are not told apart here.
    """
    return f"{batch_id}/{type_name}"


# What tasks in the ledger wait for, as `status` shows it.
STATUS_TEXTS: Mapping[str, str] = {
    WaitReason.TIME: "for a time",
    WaitReason.ROUTE: "for route {key}",
    WaitReason.GUARD: "for a guard",
    WaitReason.TYPE: "for an agent that knows type {key}",
    WaitReason.HOURS: "for the hours of type {key}",
    WaitReason.CHILDREN: "for tasks that their parents ordered too",
}


def wait_text(reason: str, key: str) -> str:
    """Return for what a task waits, to follow the word "waits"; a newer version may name more."""
    if reason == WaitReason.ROUTE and key == NO_ROUTE:
        return "for a route that they may take"
    if reason == WaitReason.CHILDREN and key == DEAD:
        return "for a replay of dead tasks that their parents ordered too"
    return STATUS_TEXTS.get(reason, f"for {reason}").format(key=key)
