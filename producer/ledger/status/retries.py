"""Reads when tasks are tried again, and says it. The times are those of the ledger."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Self

from sqlalchemy import Connection, Row, Select, exists, func, select

from docllm.producer.text.times import written
from docllm.schemas.ledger.query_plans import first_due
from docllm.schemas.ledger.sql import seconds_until
from docllm.schemas.ledger.tables import waiting
from docllm.schemas.task.record.topics import duration_s
from docllm.schemas.task.states import Status

MAX_READ = 20_000  # tasks, over all groups, that are read row by row
_DAY = timedelta(days=1)
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")

TiersOf = Callable[[str], Sequence[str]]  # the retry tiers of a type


@dataclass(frozen=True, slots=True)
class Retries:
    """Tasks that wait for a next attempt.

    The first is due at `first_at`, the last in `left_s` seconds. `number` is that of the attempt if
    it is the same for all, and `last_at` the latest time of a last attempt, if all fail.
    """

    tasks: int
    number: int | None
    is_last: bool  # for all of them
    first_at: datetime
    last_at: datetime
    now: datetime = field(compare=False)
    left_s: float = field(compare=False)

    @classmethod
    def of(cls, rows: Iterable[Row[Any]], tiers_of: TiersOf) -> Self | None:
        """Return the sum of rows of `read`; None without rows."""
        rows = list(rows)
        if not rows:
            return None
        numbers = {row.attempt + 1 for row in rows}
        left_s = max(float(row.left_s) for row in rows)
        return cls(
            tasks=sum(row.n for row in rows),
            number=numbers.pop() if len(numbers) == 1 else None,
            is_last=all(row.attempt + 1 >= row.max_attempts for row in rows),
            first_at=min(row.first_at for row in rows),
            last_at=max(_last_at(row, tiers_of) for row in rows),
            now=max(row.last_at for row in rows) - timedelta(seconds=left_s),
            left_s=max(0.0, left_s),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the form of `--json`."""
        times = {"first_at": written(self.first_at), "last_at": written(self.last_at)}
        return {"tasks": self.tasks, "attempt": self.number, "is_last": self.is_last, **times}

    @property
    def text(self) -> str:
        """The same in words."""
        number = "last" if self.is_last else _ordinal(self.number)
        whose = "waits for its" if self.tasks == 1 else "wait for their"
        first = "" if self.tasks == 1 else ", the first"
        last = f", the last at {self._time(self.last_at)}" if self.last_at > self.first_at else ""
        return f"{self.tasks:,} {whose} {number} try{first} at {self._time(self.first_at)}{last}"

    def _time(self, at: datetime) -> str:
        return f"{at:%H:%M} UTC" if at - self.now < _DAY else written(at)


def read(connection: Connection, batches: Select[tuple[int]]) -> dict[int, list[Row[Any]]]:
    """Return, by batch, how many tasks wait for which attempt, and until when.

    Of all such tasks in the ledger, only those due first are read. Those that wait for something
    else than their time are left out.
    """
    tasks = first_due(Status.RETRYING, MAX_READ)
    keys = (tasks.c.batch_id, tasks.c.type, tasks.c.attempt, tasks.c.max_attempts)
    query = select(
        *keys,
        func.count().label("n"),
        func.min(tasks.c.due_at).label("first_at"),
        func.max(tasks.c.due_at).label("last_at"),
        func.max(seconds_until(tasks.c.due_at)).label("left_s"),
    ).where(tasks.c.batch_id.in_(batches), ~exists().where(waiting.c.task_id == tasks.c.id))
    found: dict[int, list[Row[Any]]] = {}
    for row in connection.execute(query.group_by(*keys)):
        found.setdefault(row.batch_id, []).append(row)
    return found


def no_tiers(_type: str) -> Sequence[str]:
    """Return no tiers, where nobody asks for the last attempt's time."""
    return ()


def _last_at(row: Row[Any], tiers_of: TiersOf) -> datetime:
    tiers = tiers_of(row.type)
    later = range(row.attempt, row.max_attempts - 1) if tiers else ()
    delays_s = (duration_s(tiers[min(counted, len(tiers) - 1)]) for counted in later)
    at: datetime = row.last_at + timedelta(seconds=sum(delays_s))
    return at


def _ordinal(number: int | None) -> str:
    if number is None or number > len(_ORDINALS):
        return "next"
    return _ORDINALS[number - 1]
