"""Reads how many attempts of each release succeeded and failed, and their cost.

Read only. No query in here grows with the number of tasks: there is a row for each minute of the
last hour, each release and each route, and for a few minutes for each agent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, func, or_, select

from docllm.producer.ledger.status.release_comparison import Comparison, Minute, compared
from docllm.schemas.ledger.sql import LONG_AGO_TIME, utc_after
from docllm.schemas.ledger.tables import release_count
from docllm.schemas.text.money import units

LATELY_S = 3600.0
MAX_SHOWN = 5  # releases that are shown: those that worked last
_SUMS = tuple(
    func.sum(release_count.c[name]).label(name) for name in ("succeeded", "failed", "cost_micro")
)


@dataclass(frozen=True, slots=True)
class ReleaseSums:
    """Attempts that succeeded, that failed and counted, and their cost in millionths."""

    succeeded: int = 0
    failed: int = 0
    cost_micro: int = 0

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
        """The cost of all attempts for each success; None without a success."""
        return units(self.cost_micro) / self.succeeded if self.succeeded else None

    def as_json(self) -> dict[str, Any]:
        """Return the form of `status --json`, version 1."""
        return {
            "attempts": self.attempts,
            "failed": self.failed,
            "failure_rate": self.failure_rate,
            "cost": units(self.cost_micro),
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
    numbers = (int(row.succeeded), int(row.failed), int(row.cost_micro))
    return Minute(row.release_name, row.route, began, *numbers)


def _sums(rows: Sequence[Any]) -> ReleaseSums:
    return ReleaseSums(
        sum(int(row.succeeded) for row in rows),
        sum(int(row.failed) for row in rows),
        sum(int(row.cost_micro) for row in rows),
    )
