"""The ways in which a task waits: the one table of reasons.

A task that is open and not running waits in one of three places: in an agent's memory, in the
ledger, or in a retry topic. `docs/explanation/waiting.md` shows this table.
"""

from dataclasses import dataclass
from enum import StrEnum

from docllm.schemas.codes import Code

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


# Where it is kept that a task waits.
MEMORY, LEDGER, TOPIC = "memory of the agent", "ledger", "retry topic"


@dataclass(frozen=True, slots=True)
class Wait:
    """One way to wait: why, where, who ends it, and how `status` shows it.

    `code` is that of the reason which `status` shows; None if a count alone does.
    """

    what: str
    place: str
    ended_by: str
    status: str
    code: Code | None = None


# Of a reason in the ledger, `status` shows how many tasks wait for it and when the next may run.
LEDGER_WAITS = {
    WaitReason.TIME: Wait(
        "its `not_before`, `ComeBackError`, or a long or exact `TryAgainError`",
        LEDGER,
        "the time",
        "for a time",
    ),
    WaitReason.ROUTE: Wait(
        "its route is closed for long while others are open, or it may take no route",
        LEDGER,
        "an agent whose route opens, or whose settings change; the time",
        "for route {key}",
        Code.ROUTE_STOPPED,
    ),
    WaitReason.GUARD: Wait(
        "the guard of its batch, type and route is raised",
        LEDGER,
        "the guard's look, or its opening; the time",
        "for a guard",
        Code.GUARD_RAISED,
    ),
    WaitReason.TYPE: Wait(
        "the agent that received it does not know its type",
        LEDGER,
        "an agent that starts, or reads its settings again, and knows the type; the time",
        "for an agent that knows type {key}",
        Code.TYPE_UNKNOWN,
    ),
    WaitReason.HOURS: Wait(
        "the hours of its type have not begun",
        LEDGER,
        "the time; an agent whose settings change",
        "for the hours of type {key}",
        Code.TYPE_ASLEEP,
    ),
    WaitReason.CHILDREN: Wait(
        "it is a join, and a task that its parent ordered too has not ended, or is dead",
        LEDGER,
        "the end of the last of these tasks, at once; an agent, which asks each minute; a replay "
        "of those that are dead",
        "for tasks that their parents ordered too",
    ),
}
OTHER_WAITS = (
    Wait(
        "no slot, limit or route is free for it",
        MEMORY,
        "the limit or the route, at once",
        "the limit or the route",
        Code.ROUTE_PAUSED,
    ),
    Wait(
        "it was snoozed: the provider refused its call, its result cannot be written yet, or its "
        "handler waited too long for a lock or limit",
        MEMORY,
        "the time; `docllm agent resume`",
        "the route",
        Code.ROUTE_STOPPED,
    ),
    Wait(
        "its handler waits for a lock",
        MEMORY,
        "the task that holds the lock",
        "the lock and its holder",
        Code.LOCK_HELD,
    ),
    Wait(
        "another agent holds it, or its record came too early",
        MEMORY,
        "the time; the end of the other agent",
        "nothing of its own",
    ),
    Wait(
        "its attempt failed and counts",
        TOPIC,
        "the time",
        "retrying, and when the first is due",
    ),
)


def wait_text(reason: str, key: str) -> str:
    """Return for what a task waits, to follow the word "waits"; a newer version may name more."""
    if reason == WaitReason.ROUTE and key == NO_ROUTE:
        return "for a route that they may take"
    if reason == WaitReason.CHILDREN and key == DEAD:
        return "for a replay of dead tasks that their parents ordered too"
    known = {str(name): wait.status for name, wait in LEDGER_WAITS.items()}
    return known.get(reason, f"for {reason}").format(key=key)
