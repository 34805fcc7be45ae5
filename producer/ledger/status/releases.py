"""Reads how many attempts of each release succeeded and failed, and their cost.

Read only. No query in here grows with the number of tasks: there is a row for each minute of the
last hour, each release and each route, and for a few minutes for each agent.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import sqrt
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, or_, select

from docllm.schemas.ledger.sql import LONG_AGO_TIME, utc_after
from docllm.schemas.ledger.tables import release_count
from docllm.schemas.text.wording import cost_units, units

LATELY_S = 3600.0
MAX_SHOWN = 5  # releases that are shown: those that worked last
_NUMBERS = ("succeeded", "failed", "cost_micro", "unpriced")
_SUMS = tuple(func.sum(release_count.c[name]).label(name) for name in _NUMBERS)


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
    unpriced: int = 0

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
    """Say which release fails more often than the others, beyond chance.

    A release is compared with all others in the same minutes and on the same routes, so that an
    outage, which hits all of them, blames none; a release that shares no minute and route is left
    out. For each minute and route, the failure rate of the others gives the expected number of
    failures (Mantel-Haenszel test). A burst of failures within a minute is one event, however many
    attempts fail: the spread is also computed over whole minutes, and the larger one is used.
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


@dataclass(frozen=True, slots=True)
class ReleaseSums:
    """Attempts that succeeded, that failed and counted, and their cost in millionths.

    `unpriced` counts the calls whose cost is unknown.
    """

    succeeded: int = 0
    failed: int = 0
    cost_micro: int = 0
    unpriced: int = 0

    @property
    def attempts(self) -> int:
        """How many there were."""
        return self.succeeded + self.failed

    @property
    def failure_rate(self) -> float | None:
        """The share of attempts that failed; None without an attempt."""
        return self.failed / self.attempts if self.attempts else None

    @property
    def cost_per_success(self) -> float | None:
        """The cost of all attempts for each success; None without one, or if it is not known."""
        is_known = self.succeeded and not self.unpriced
        return units(self.cost_micro) / self.succeeded if is_known else None

    def as_json(self) -> dict[str, Any]:
        """Return the form of `status --json`, version 1."""
        return {
            "attempts": self.attempts,
            "failed": self.failed,
            "failure_rate": self.failure_rate,
            "cost": cost_units(self.cost_micro, self.unpriced),
            "unpriced_calls": self.unpriced,
            "cost_per_success": self.cost_per_success,
        }


@dataclass(frozen=True, slots=True)
class ReleaseStatus:
    """One release: what it did in the last hour and in all, and how it compares with the others.

    `comparison` is None if no other release has worked in the same minutes on the same routes.
    """

    name: str
    lately: ReleaseSums
    total: ReleaseSums
    comparison: Comparison | None = None

    @property
    def is_worse(self) -> bool:
        """Whether it fails more often than the others, beyond chance."""
        return self.comparison is not None and self.comparison.is_worse

    @property
    def warning(self) -> str:
        """A sentence that it is worse than the other releases; empty if it is not."""
        if self.comparison is None or not self.is_worse:
            return ""
        own_rate, others_rate = self.comparison.failure_rate, self.comparison.others_rate
        return (
            f"release {self.name} fails more often than the others: {own_rate:.1%} against "
            f"{others_rate:.1%} of its attempts, on the same routes in the same minutes of the "
            "last hour"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the form of `status --json`, version 1."""
        return {
            "name": self.name,
            "last_hour": self.lately.as_json(),
            "total": self.total.as_json(),
            "compared": None if self.comparison is None else self.comparison.as_json(),
        }


def read_releases(connection: Connection, group: str) -> tuple[ReleaseStatus, ...]:
    """Return the releases of a group that worked last, the newest work first."""
    of_group = release_count.c.group_name == group
    names = [row.release_name for row in connection.execute(_newest(of_group))]
    if not names:
        return ()
    minutes = _minutes(connection, of_group)
    comparisons = compared(minutes)
    total = {row.release_name: _sums([row]) for row in connection.execute(_total(of_group))}
    return tuple(
        ReleaseStatus(
            name,
            _sums([minute for minute in minutes if minute.release == name]),
            total.get(name, ReleaseSums()),
            comparisons.get(name),
        )
        for name in names
    )


def _newest(of_group: ColumnElement[bool]) -> Any:
    newest = func.max(release_count.c.last_at)
    name = release_count.c.release_name
    return (
        select(name).where(of_group).group_by(name).order_by(newest.desc(), name).limit(MAX_SHOWN)
    )


def _total(of_group: ColumnElement[bool]) -> Any:
    """Return the query for all sums: the minutes that are added up, and the rows of agents."""
    is_total = or_(release_count.c.starts_at == LONG_AGO_TIME, release_count.c.agent_id > 0)
    name = release_count.c.release_name
    return select(name, *_SUMS).where(of_group, is_total).group_by(name)


def _minutes(connection: Connection, of_group: ColumnElement[bool]) -> list[Minute]:
    keys = [release_count.c[name] for name in ("release_name", "route", "starts_at")]
    query = select(*keys, *_SUMS).where(of_group, release_count.c.starts_at > utc_after(-LATELY_S))
    return [_minute(row) for row in connection.execute(query.group_by(*keys))]


def _minute(row: Row[Any]) -> Minute:
    began: datetime = row.starts_at
    numbers = (int(getattr(row, name)) for name in _NUMBERS)
    return Minute(row.release_name, row.route, began, *numbers)


def _sums(rows: Sequence[Any]) -> ReleaseSums:
    return ReleaseSums(*(sum(int(getattr(row, name)) for row in rows) for name in _NUMBERS))
