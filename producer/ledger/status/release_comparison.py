"""Says which release fails more often than the others, beyond chance. Pure.

A release is compared with all others in the same minutes and on the same routes, so that an outage,
which hits all of them, blames none. For each minute and route, the failure rate of the other
releases gives the expected number of failures (Mantel-Haenszel test). A burst of failures within a
minute is one event, however many attempts fail. So the spread is also computed over whole minutes,
and the larger of the two spreads is used.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import sqrt
from typing import Any

MARGIN = 0.02  # a release is reported if its rate is at least two percentage points higher
DEVIATIONS = 3.0  # and at least this many standard deviations above the others


@dataclass(frozen=True, slots=True)
class Minute:
    """The attempts of one release on one route in one minute; cost in millionths."""

    release: str
    route: str
    began: datetime
    succeeded: int
    failed: int
    cost_micro: int = 0

    @property
    def attempts(self) -> int:
        """How many there were."""
        return self.succeeded + self.failed


@dataclass(frozen=True, slots=True)
class Comparison:
    """A release beside all others, in the minutes and on the routes that they share.

    `failure_rate` is the release's own. `others_rate` is what the others lead to expect for the
    same attempts, in the same minutes and on the same routes. `deviations` is the difference in
    standard deviations.
    """

    attempts: int
    failure_rate: float
    others_rate: float
    deviations: float

    @property
    def is_worse(self) -> bool:
        """Whether the release fails more often, beyond chance and by more than a little."""
        margin = self.failure_rate - self.others_rate
        return margin >= MARGIN and self.deviations >= DEVIATIONS

    def as_json(self) -> dict[str, Any]:
        """Return the form of `status --json`, version 1."""
        return {
            "attempts": self.attempts,
            "failure_rate": self.failure_rate,
            "others_rate": self.others_rate,
            "deviations": self.deviations,
            "worse": self.is_worse,
        }


def compared(minutes: Iterable[Minute]) -> dict[str, Comparison]:
    """Compare each release with the others.

    One that shares no minute and route is left out.
    """
    places: dict[tuple[str, datetime], dict[str, Minute]] = defaultdict(dict)
    for minute in minutes:
        if minute.attempts:
            places[minute.route, minute.began][minute.release] = minute
    shared = {place: of_place for place, of_place in places.items() if len(of_place) > 1}
    releases = sorted({release for of_place in shared.values() for release in of_place})
    return {release: _comparison(release, shared) for release in releases}


def _comparison(
    release: str, shared: Mapping[tuple[str, datetime], Mapping[str, Minute]]
) -> Comparison:
    attempts = failed = 0
    by_others = variance = 0.0
    excess: dict[datetime, float] = defaultdict(float)
    for (_, began), of_place in shared.items():
        if release not in of_place:
            continue
        own = of_place[release]
        total = sum(minute.attempts for minute in of_place.values())
        all_failed = sum(minute.failed for minute in of_place.values())
        others = total - own.attempts
        attempts += own.attempts
        failed += own.failed
        by_others += own.attempts * (all_failed - own.failed) / others
        excess[began] += own.failed - own.attempts * all_failed / total
        parts = own.attempts * others * all_failed * (total - all_failed)
        variance += parts / (total * total * (total - 1))
    spread = sqrt(max(variance, sum(minute * minute for minute in excess.values())))
    return Comparison(
        attempts,
        failed / attempts,
        by_others / attempts,
        sum(excess.values()) / spread if spread else 0.0,
    )
