"""Orders records for tasks whose record Kafka lost, as SQL."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    false,
    literal,
    or_,
    select,
    update,
)

from docllm.producer.ledger.outbox import LANE_CARRIER, place_in_lanes
from docllm.schemas.ledger.query_plans import along_due, in_group
from docllm.schemas.ledger.sql import UtcTime, utc_after, utc_now
from docllm.schemas.ledger.tables import batch, outbox, task
from docllm.schemas.task.states import Status

PAGE = 500
STEP = 5000  # waiting tasks that one step of a walk looks at


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
    while an older order for the same topics waits: its tasks look the same. A wrongly swept task
    costs one duplicate record.
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


@dataclass(frozen=True, slots=True)
class SweepCursor:
    """The task up to which a walk has come, in the order of `due_at`."""

    due_at: datetime
    id: int


def replace_lost_by_carrier(
    connection: Connection,
    group: str,
    carriers: Sequence[StatusTopics],
    after: SweepCursor | None,
    slack_s: float,
) -> tuple[int, SweepCursor | None]:
    """Order records for lost tasks among the next ones in the order of `due_at`.

    All `carriers` are of one status and have one destination each. A task is compared with the
    horizon of its own carrier alone, so that a lane with a long backlog hides nothing that another
    one lost. No index covers carriers, so each call reads a bounded number of the tasks that
    `replace_lost_records` cannot decide. Return how many were lost, and the cursor from which the
    next call goes on; None if the walk has come to its end.
    """
    horizons = [carrier.horizon for carrier in carriers if carrier.horizon is not None]
    status, ends = carriers[0].status, {carrier.horizon for carrier in carriers}
    if not horizons or len(ends) == 1:
        return 0, None
    begin = SweepCursor(min(horizons) - timedelta(seconds=slack_s), 0)
    if after is not None and after.due_at >= begin.due_at:
        begin = after
    waits = and_(
        task.c.status == int(status),
        task.c.due_at >= literal(begin.due_at, UtcTime),
        or_(task.c.due_at > literal(begin.due_at, UtcTime), task.c.id > begin.id),
    )
    overdue = task.c.due_at < utc_after(-slack_s)
    end = _step_end(connection, and_(waits, overdue))
    # One upper bound alone, since SQLite uses the first that it meets.
    within = overdue if end is None else task.c.due_at <= literal(end.due_at, UtcTime)
    lost = [
        and_(_lost(carrier, slack_s), task.c.carrier == carrier.destinations[0])
        for carrier in carriers
        if not _order_waits(connection, group, carrier, slack_s)
    ]
    of_group = in_group(group, batch.c.cancelled_at.is_(None))
    query = select(task.c.id, task.c.due_at).where(waits, within, or_(false(), *lost), of_group)
    in_order = along_due(query.order_by(task.c.due_at, task.c.id).limit(PAGE))
    rows = connection.execute(in_order).all()
    if len(rows) == PAGE:
        end = SweepCursor(rows[-1].due_at, rows[-1].id)
    ids = sorted(row.id for row in rows)
    count = _order(connection, group, ids, or_(*lost), of_group) if ids else 0
    return count, end


def _step_end(connection: Connection, waits: ColumnElement[bool]) -> SweepCursor | None:
    """Return the last task of the next step; None if the step has no more tasks than these."""
    query = select(task.c.due_at, task.c.id).where(waits).order_by(task.c.due_at, task.c.id)
    row = connection.execute(along_due(query).limit(1).offset(STEP - 1)).first()
    return None if row is None else SweepCursor(row.due_at, row.id)


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
