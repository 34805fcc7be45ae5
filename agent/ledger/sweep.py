"""Housekeeping of the reaper, as SQL: tasks whose record Kafka has lost, and old counts that can be summed up."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, insert, literal, select, update

from producer import outbox as orders
from schemas.sql import UtcTime, utc_after, utc_now
from schemas.tables import batch, outbox, tally, task
from schemas.task import WAITING

PAGE = 500
COMPACT_AFTER_S = 900.0
COMPACT_FROM, COMPACT_MOST = 200, 5000
_SUMS = ("delta", "tokens_in", "tokens_out", "cost_micro")
_KEYS = ("batch_id", "type", "route", "state", "outcome", "fingerprint", "disposition")


def uncarried(connection: Connection, group: str, horizon: datetime | None, slack_s: float) -> int:
    """Order records for tasks that wait and that no record can reach any more; return how many, at most a page.

    `horizon` is the smallest append time among the records at the group's committed offsets, UTC without a zone; None when
    all lags are 0 and the present is meant. A row that waits since before it, less the slack, has no carrier. The brokers' clock may
    be ahead, so that what is swept is overdue by the database's own clock too. Nothing is swept while an older order waits, since
    its tasks look the same. A false find costs one duplicate record.
    """
    before: ColumnElement[Any] = utc_after(-slack_s) if horizon is None else literal(horizon - timedelta(seconds=slack_s), UtcTime)
    older = select(outbox.c.id).where(outbox.c.group_name == group, outbox.c.due_at < before).limit(1)
    if connection.execute(older).scalar() is not None:
        return 0
    mine = select(batch.c.id).where(batch.c.group_name == group, batch.c.cancelled_at.is_(None))
    overdue = task.c.due_at < utc_after(-slack_s)
    lost = (task.c.status.in_(WAITING), task.c.due_at < before, overdue, task.c.batch_id.in_(mine))
    ids = sorted(connection.execute(select(task.c.id).where(*lost).order_by(task.c.due_at).limit(PAGE)).scalars())
    locked = select(task.c.id, task.c.fence).where(task.c.id.in_(ids), *lost).order_by(task.c.id).with_for_update(skip_locked=True)
    rows = connection.execute(locked).all() if ids else []
    if rows:
        connection.execute(update(task).where(task.c.id.in_([row.id for row in rows])).values(due_at=utc_now()))
        orders.place(connection, group, "tasks", [(orders.TASK, row.id, row.fence) for row in rows], grace_s=0)
    return len(rows)


def compact(connection: Connection) -> int:
    """Replace old counts by their sums; return how many rows went."""
    old = select(tally).where(tally.c.created_at < utc_after(-COMPACT_AFTER_S)).order_by(tally.c.id).limit(COMPACT_MOST)
    rows = connection.execute(old.with_for_update(skip_locked=True)).all()
    if len(rows) < COMPACT_FROM:
        return 0
    sums: dict[tuple[Any, ...], Counter[str]] = {}
    for row in rows:
        total = sums.setdefault(tuple(getattr(row, name) for name in _KEYS), Counter())
        total.update({name: getattr(row, name) for name in _SUMS})
    oldest = min(row.created_at for row in rows)
    connection.execute(delete(tally).where(tally.c.id.in_([row.id for row in rows])))
    merged = [
        dict(zip(_KEYS, key, strict=True)) | {name: total[name] for name in _SUMS} | {"created_at": oldest} for key, total in sums.items()
    ]
    connection.execute(insert(tally), merged)
    return len(rows) - len(merged)
