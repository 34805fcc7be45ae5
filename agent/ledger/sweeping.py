"""Orders records for tasks whose record Kafka lost, as SQL.

Tested by tests/contract/test_ledger_sweep.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    literal,
    or_,
    select,
    update,
)

from producer.ledger.outbox import LANE_CARRIER, place_in_lanes
from schemas.ledger.query_plans import along_due, in_group
from schemas.ledger.sql import UtcTime, utc_after, utc_now
from schemas.ledger.tables import batch, outbox, task
from schemas.task.states import Status

PAGE = 500


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
    of_task = (task.c.id, task.c.fence, task.c.lane)
    lost = select(*of_task).where(task.c.id.in_(ids), *conditions).order_by(task.c.id)
    rows = connection.execute(lost.with_for_update(skip_locked=True)).all()
    if rows:
        of_rows = task.c.id.in_([row.id for row in rows])
        connection.execute(
            update(task).where(of_rows).values(due_at=utc_now(), carrier=LANE_CARRIER)
        )
        place_in_lanes(connection, group, rows, grace_s=0)
    return len(rows)


def _due(row: Row[Any]) -> datetime:
    due: datetime = row.due_at
    return due
