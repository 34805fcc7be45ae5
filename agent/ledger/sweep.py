"""Housekeeping of the reaper, as SQL: tasks whose record Kafka has lost, and old counts that can be summed up."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, insert, literal, select, update

from producer import outbox as orders
from schemas.sql import UtcTime, utc_after, utc_now
from schemas.tables import batch, outbox, tally, task
from schemas.task import WAITING

PAGE = 500
COMPACT_AFTER_S = 900.0
# Old rows of a type and route of a batch; rows that are looked at, and that are summed up, in one transaction.
COMPACT_FROM, COMPACT_LOOK, COMPACT_MOST = 20, 50_000, 5000
_SUMS = ("delta", "tokens_in", "tokens_out", "cost_micro")
_KEYS = ("batch_id", "type", "route", "state", "outcome", "fingerprint", "disposition")
_OLD = tally.c.created_at < utc_after(-COMPACT_AFTER_S)
_KIND = [tally.c[name] for name in _KEYS]
_PLACE = [tally.c.batch_id, tally.c.type, tally.c.route]
# Read from an index alone; what stands in few rows is not looked at any closer.
_MANY = select(*_PLACE).where(_OLD).group_by(*_PLACE).having(func.count() >= COMPACT_FROM).subquery()
_LOOKED_AT = (
    select(tally.c.id, *_KIND)
    .join(_MANY, and_(*(column == _MANY.c[column.name] for column in _PLACE)))
    .where(_OLD)
    .limit(COMPACT_LOOK)
    .subquery()
)
_COUNTED = select(
    _LOOKED_AT, func.count().over(partition_by=[column for column in _LOOKED_AT.c if column.name != "id"]).label("alike")
).subquery()
# Those of one kind stand together, so that a page has two of a kind at the least.
_REPEATED = select(_COUNTED.c.id).where(_COUNTED.c.alike > 1).order_by(*(_COUNTED.c[name] for name in _KEYS)).limit(COMPACT_MOST)


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
    """Replace old counts that differ in nothing but their numbers by their sums; return how many rows went.

    A sum has the time of the newest of its rows, so that what was seen lately on a route stays known. A row that is alone of its kind
    is left as it is.
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
        connection.execute(insert(tally), [one for _, one in sums])
    return len(summed) - len(sums)


def _locked(connection: Connection, ids: Sequence[int]) -> Iterator[Row[Any]]:
    """Yield those of these rows that nobody else compacts, locked."""
    for page in _pages(ids):
        these = select(tally).where(tally.c.id.in_(page)).order_by(tally.c.id)
        yield from connection.execute(these.with_for_update(skip_locked=True)).all()


def _pages(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    ordered = sorted(ids)
    return (ordered[start : start + PAGE] for start in range(0, len(ordered), PAGE))


def _sum(key: tuple[Any, ...], rows: Sequence[Row[Any]]) -> dict[str, Any]:
    sums = {name: sum(getattr(row, name) for row in rows) for name in _SUMS}
    return dict(zip(_KEYS, key, strict=True)) | sums | {"created_at": max(row.created_at for row in rows)}
