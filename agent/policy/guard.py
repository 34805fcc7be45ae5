"""When tasks fail as a whole rather than each for itself: the rule by which a failure may be dead-lettered. Pure.

A key is (batch, type, route). Failures that the same input may outlive are given up on one by one; when most tasks of a key
are, or ten in a row by the same error, or when nothing succeeds on the route at all, it is not the tasks that are broken.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from agent.outcome import Failure, Moved, Spent
from agent.policy.tiers import SPREAD, Tier

# The classes of tasks that were moved: since a guard is raised, since their route is closed.
GUARDED, ROUTE_CLOSED = "GUARD", "ROUTE"
WINDOW_S = 600.0
DEATHS, SHARE, RUN = 10, 0.5, 10


class Cause(StrEnum):
    """Why a guard was raised; it decides what its probe is."""

    NO_SUCCESS = "no_success"  # nothing succeeds on the route: a prompt of our own tells whether it works
    EXHAUSTED = "exhausted"  # the tasks fail as a whole: one of them goes first
    WORKER_LOST = "worker_lost"  # agents are lost over them: the same


@dataclass(frozen=True, slots=True)
class Ended:
    """`count` tasks that ended alike: `exhausted` is the fingerprint of the error that used up their attempts, if one did."""

    exhausted: bytes | None
    count: int = 1


@dataclass(slots=True)
class Watch:
    """One key: whether its guard is raised, whether its route works for anything, and how its tasks ended lately, the newest first."""

    raised: bool
    route_works: bool
    lately: Iterable[Ended] = ()
    cause: Cause | None = None
    why: str = ""
    _deaths: int = field(init=False, default=0)
    _total: int = field(init=False, default=0)
    _run: int = field(init=False, default=0)
    _stamp: bytes | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        for one in reversed(list(self.lately)):
            self._add(one)

    def may_die(self, stamp: bytes) -> bool:
        """Return whether a task whose attempts are used up by this error may be given up on, and count it if so."""
        if not self.raised and not self.route_works:
            self._raise(Cause.NO_SUCCESS, f"nothing succeeded on the route for {WINDOW_S / 60:g} minutes")
        if self.raised:
            return False
        self._add(Ended(stamp))
        if self._run >= RUN:
            self._raise(Cause.EXHAUSTED, f"the last {self._run} tasks were given up on for the same error")
        elif self._deaths >= DEATHS and self._deaths > SHARE * self._total:
            self._raise(Cause.EXHAUSTED, f"{self._deaths} of the last {self._total} tasks were given up on")
        return True

    def other(self) -> None:
        """Count a task that ended otherwise: it succeeded, or died of its own input."""
        self._add(Ended(None))

    def _add(self, one: Ended) -> None:
        self._total += one.count
        self._deaths += one.count if one.exhausted else 0
        self._run = one.count + (self._run if one.exhausted == self._stamp else 0) if one.exhausted else 0
        self._stamp = one.exhausted

    def _raise(self, cause: Cause, why: str) -> None:
        self.raised, self.cause, self.why = True, cause, why


def moved(failure: Failure, spent: Spent, tier: Tier, task_id: int) -> Moved:
    """Return that a task waits in this tier, uncounted, up to a fifth longer: its number draws how long, so that not all return at once."""
    return Moved(failure, spent, tier.name, tier.delay_s * (1 + SPREAD * (task_id % 997) / 997))
