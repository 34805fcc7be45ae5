"""Orders records for tasks whose record Kafka lost, and sums up old counts.

Tested by tests/contract/test_ledger_sweep.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from producer.ledger.outbox import TASK, place
from schemas.ledger.query_plans import along_due, in_group
from schemas.ledger.sql import UtcTime, utc_after, utc_now
from schemas.ledger.tables import batch, outbox, tally, task
from schemas.task.states import Status

PAGE = 500
COMPACT_AFTER_S = 900.0
COMPACT_FROM = 20  # the fewest old rows of a batch's type and route that are summed up
COMPACT_LOOK = 50_000  # the most rows that one transaction reads
COMPACT_MOST = 5000  # the most rows that one transaction sums up
_SUMS = ("delta", "tokens_in", "tokens_out", "cost_micro")
_KEYS = ("batch_id", "type", "route", "state", "outcome", "fingerprint", "disposition")
_OLD = tally.c.created_at < utc_after(-COMPACT_AFTER_S)
_KIND = [tally.c[name] for name in _KEYS]
_PLACE = [tally.c.batch_id, tally.c.type, tally.c.route]
# Read from an index alone. A type and route with few rows is not examined further.
_MANY = (
    select(*_PLACE).where(_OLD).group_by(*_PLACE).having(func.count() >= COMPACT_FROM).subquery()
)
_LOOKED_AT = (
    select(tally.c.id, *_KIND)
    .join(_MANY, and_(*(column == _MANY.c[column.name] for column in _PLACE)))
    .where(_OLD)
    .limit(COMPACT_LOOK)
    .subquery()
)
_COUNTED = select(
    _LOOKED_AT,
    func.count()
    .over(partition_by=[column for column in _LOOKED_AT.c if column.name != "id"])
    .label("alike"),
).subquery()
# Rows of one kind stand together, so that a page has at least two rows of a kind.
_REPEATED = (
    select(_COUNTED.c.id)
    .where(_COUNTED.c.alike > 1)
    .order_by(*(_COUNTED.c[name] for name in _KEYS))
    .limit(COMPACT_MOST)
)


@dataclass(frozen=True, slots=True)
class StatusTopics:
    """The topics with the records of one status's waiting tasks, and how far back they go.

    - `status` is the status of the tasks, and `destinations` are their topics.
    - `horizon` is when the oldest record of these topics that the group has not finished was
      appended, UTC without a zone. If there is none, it is None and stands for the present time.
    """

    status: Status
    destinations: tuple[str, ...]
    horizon: datetime | None

    def before(self, slack_s: float) -> ColumnElement[Any]:
        """Return the time before which a task without a record must have begun to wait."""
        if self.horizon is None:
            return utc_after(-slack_s)
        return literal(self.horizon - timedelta(seconds=slack_s), UtcTime)


def replace_lost_records(
    connection: Connection,
    group: str,
    topics_by_status: Sequence[StatusTopics],
    slack_s: float,
) -> int:
    """Order records for tasks that wait and have none; return how many, at most a page.

    A task that has waited since before its horizon, less the slack, has no record. It must be
    overdue by the database's own clock too, since the brokers' clock may be ahead. Nothing is swept
    while an older order for the same topics waits: its tasks look the same. A false find costs one
    duplicate record.
    """
    certain = [
        status_topics
        for status_topics in topics_by_status
        if not _order_waits(connection, group, status_topics, slack_s)
    ]
    lost = [_lost(status_topics, slack_s) for status_topics in certain]
    of_group = in_group(group, batch.c.cancelled_at.is_(None))
    rows: list[Row[Any]] = []
    # One status at a time: only then the index has its tasks in the order of `due_at`.
    for is_lost in lost:
        query = select(task.c.id, task.c.due_at).where(is_lost, of_group).order_by(task.c.due_at)
        rows += connection.execute(along_due(query).limit(PAGE)).all()
    ids = sorted(row.id for row in sorted(rows, key=_due)[:PAGE])
    return _order(connection, group, ids, or_(*lost), of_group) if ids else 0


def _lost(status_topics: StatusTopics, slack_s: float) -> ColumnElement[bool]:
    overdue = task.c.due_at < utc_after(-slack_s)
    return and_(
        task.c.status == int(status_topics.status),
        task.c.due_at < status_topics.before(slack_s),
        overdue,
    )


def _order_waits(
    connection: Connection, group: str, status_topics: StatusTopics, slack_s: float
) -> bool:
    older = select(outbox.c.id).where(
        outbox.c.group_name == group,
        outbox.c.destination.in_(status_topics.destinations),
        outbox.c.due_at < status_topics.before(slack_s),
    )
    return connection.execute(older.limit(1)).scalar() is not None


def _order(
    connection: Connection,
    group: str,
    ids: Sequence[int],
    *conditions: ColumnElement[bool],
) -> int:
    """Order records for those tasks that still have none; return how many."""
    lost = (
        select(task.c.id, task.c.fence).where(task.c.id.in_(ids), *conditions).order_by(task.c.id)
    )
    rows = connection.execute(lost.with_for_update(skip_locked=True)).all()
    if rows:
        of_rows = task.c.id.in_([row.id for row in rows])
        connection.execute(update(task).where(of_rows).values(due_at=utc_now()))
        items = [(TASK, row.id, row.fence) for row in rows]
        place(connection, group, "tasks", items, grace_s=0)
    return len(rows)


def _due(row: Row[Any]) -> datetime:
    due: datetime = row.due_at
    return due


def compact(connection: Connection) -> int:
    """Replace old counts of one kind by their sum; return by how many rows the tally shrank.

    Counts of one kind differ only in their numbers. A sum takes the time of its newest row, so that
    recent successes of a route stay known. A row that is alone of its kind stays as it is.
    """
    ids = connection.execute(_REPEATED).scalars().all()
    kinds: dict[tuple[Any, ...], list[Row[Any]]] = {}
    for row in _locked(connection, ids):
        kinds.setdefault(tuple(getattr(row, name) for name in _KEYS), []).append(row)
    sums = [(rows, _sum(key, rows)) for key, rows in kinds.items() if len(rows) > 1]
    summed = [row.id for rows, _ in sums for row in rows]
    for page in _pages(summed):
        connection.execute(delete(tally).where(tally.c.id.in_(page)))
    if sums:
        connection.execute(insert(tally), [total for _, total in sums])
    return len(summed) - len(sums)


def _locked(connection: Connection, ids: Sequence[int]) -> Iterator[Row[Any]]:
    """Lock and yield the given rows that nobody else compacts."""
    for page in _pages(ids):
        query = select(tally).where(tally.c.id.in_(page)).order_by(tally.c.id)
        yield from connection.execute(query.with_for_update(skip_locked=True)).all()


def _pages(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    ordered = sorted(ids)
    return (ordered[start : start + PAGE] for start in range(0, len(ordered), PAGE))


def _sum(key: tuple[Any, ...], rows: Sequence[Row[Any]]) -> dict[str, Any]:
    totals = {name: sum(getattr(row, name) for row in rows) for name in _SUMS}
    newest_at = max(row.created_at for row in rows)
    return dict(zip(_KEYS, key, strict=True)) | totals | {"created_at": newest_at}
