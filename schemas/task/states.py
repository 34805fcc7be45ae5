"""A task's states, and the one table of legal transitions.

A transition that is not listed does not exist. `docs/explanation/how-it-works.md` draws this table.
The SQL of claim, release, reap and every settle takes its source states from it. Cancel and replay
use only a part of the source states. Cancel takes WAITING tasks; a running task is cancelled by its
settle or reset. Replay takes the final state that the person selected.
"""

from dataclasses import dataclass
from enum import IntEnum


class Status(IntEnum):
    """The state of a task; the number is what the database stores."""

    PENDING = 0
    PROCESSING = 1
    RETRYING = 2
    SUCCEEDED = 3
    DEAD = 4
    CANCELLED = 5


FINAL = (Status.SUCCEEDED, Status.DEAD, Status.CANCELLED)
WAITING = (Status.PENDING, Status.RETRYING)
OPEN = (Status.PENDING, Status.PROCESSING, Status.RETRYING)


@dataclass(frozen=True, slots=True)
class Transition:
    """One legal change of state.

    `fence` is True when the transition orders a new record, so that older records become stale.
    """

    name: str
    sources: tuple[Status, ...]
    target: Status
    fence: bool = False


# A settle also takes PENDING rows that still carry its owner: the settle is late, and the task was
# reaped but not claimed again.
SETTLES = (Status.PROCESSING, Status.PENDING)

TRANSITIONS = {
    transition.name: transition
    for transition in (
        Transition("claim", WAITING, Status.PROCESSING),
        Transition("succeed", SETTLES, Status.SUCCEEDED),
        Transition("retry", SETTLES, Status.RETRYING, fence=True),
        Transition("move", SETTLES, Status.RETRYING, fence=True),
        Transition("give_up", SETTLES, Status.DEAD),
        Transition("snooze", SETTLES, Status.PENDING),
        Transition("release", SETTLES, Status.PENDING),
        Transition("reap", (Status.PROCESSING,), Status.PENDING),
        Transition("lose", (Status.PROCESSING,), Status.DEAD),
        Transition("cancel", OPEN, Status.CANCELLED),
        Transition("replay", (Status.DEAD, Status.CANCELLED), Status.PENDING, fence=True),
    )
}
