"""A task's states, and the one table of legal moves.

SQL takes its WHERE clauses from this table, and the README its diagram. A move that is not listed
does not exist.
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
OWNER_BITS = 24  # the low bits of an owner, which number the claims; the agent's id is above
OPEN = (Status.PENDING, Status.PROCESSING, Status.RETRYING)


@dataclass(frozen=True, slots=True)
class Move:
    """One legal change of state.

    `fence` is True when the move orders a new record, so that older records become stale.
    """

    name: str
    sources: tuple[Status, ...]
    target: Status
    fence: bool = False


# A settle also takes PENDING rows that still carry its owner: the settle is late, and the task was
# reaped but not claimed again.
SETTLES = (Status.PROCESSING, Status.PENDING)

MOVES = {
    move.name: move
    for move in (
        Move("claim", WAITING, Status.PROCESSING),
        Move("succeed", SETTLES, Status.SUCCEEDED),
        Move("retry", SETTLES, Status.RETRYING, fence=True),
        Move("move", SETTLES, Status.RETRYING, fence=True),
        Move("give_up", SETTLES, Status.DEAD),
        Move("snooze", SETTLES, Status.PENDING),
        Move("release", SETTLES, Status.PENDING),
        Move("reap", (Status.PROCESSING,), Status.PENDING),
        Move("lose", (Status.PROCESSING,), Status.DEAD),
        Move("cancel", OPEN, Status.CANCELLED),
        Move("replay", (Status.DEAD, Status.CANCELLED), Status.PENDING, fence=True),
    )
}
