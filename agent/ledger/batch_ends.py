"""Finds the batches that are done and orders the hook of their end, as SQL.

A batch is done when its load has ended, or it was cancelled, and every task of it is final. It is
done again, in the next round, when tasks have become final since. Only the counts are read, in one
statement, so that an end costs the same whatever the size of its batch.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson
from sqlalchemy import (
    Connection,
    Select,
    and_,
    bindparam,
    case,
    func,
    insert,
    or_,
    select,
)

from docllm.producer.ledger import hook_orders, replay_progress, tally
from docllm.producer.ledger.status import batch_status
from docllm.producer.ledger.store import Origin
from docllm.producer.text.times import written
from docllm.schemas.ledger.tables import batch, batch_end, hook_type
from docllm.schemas.task.failures import TallyOutcome
from docllm.schemas.task.hooks import OF_BATCHES, HookEvent
from docllm.schemas.task.states import FINAL, Status

PAGE = 20  # batches whose ends are written in one transaction
_FINAL = tuple(map(int, FINAL))
_COUNTS = ("total", "succeeded", "dead", "cancelled")


def done(connection: Connection, group: str, ids: Sequence[int] | None = None) -> list[Any]:
    """Return the batches that are done and whose end is not written; of `ids` if they are given.

    A row has `id`, `name`, `round` and `ends` of the end to be written. Ends from before the first
    agent with the hook are left out. Replays are read first: the tasks that they made pending
    before they ended are then seen.
    """
    replayed = {
        run.request.selection.batch for run in replay_progress.unfinished(connection, group)
    }
    if None in replayed:
        return []
    values = {"of_group": group, "replayed": sorted(filter(None, replayed)), "ids": ids}
    return list(connection.execute(_done(of_ids=ids is not None), values).all())


@cache
def _done(*, of_ids: bool) -> Select[Any]:
    """Return the statement of `done`; it is built once."""
    since = (
        select(hook_type.c.since)
        .where(
            hook_type.c.group_name == bindparam("of_group"),
            hook_type.c.type == OF_BATCHES[0],
            hook_type.c.event == str(OF_BATCHES[1]),
        )
        .scalar_subquery()
    )
    last = (
        select(
            batch_end.c.batch_id,
            func.max(batch_end.c.round).label("round"),
            func.max(batch_end.c.ends).label("ends"),
        )
        .group_by(batch_end.c.batch_id)
        .subquery()
    )
    closed = [
        batch.c.group_name == bindparam("of_group"),
        or_(
            batch.c.closed_at.is_not(None),
            and_(batch.c.cancelled_at.is_not(None), batch.c.note == Origin.LOAD.value),
        ),
        or_(batch.c.archived_at.is_(None), batch.c.archived_at >= since),
        batch.c.name.not_in(bindparam("replayed", expanding=True)),
    ]
    if of_ids:
        closed.append(batch.c.id.in_(bindparam("ids", expanding=True)))
    sums = _sums(select(batch.c.id).where(*closed))
    ends = func.coalesce(sums.c.ends, 0)
    return (
        select(
            batch.c.id,
            batch.c.name,
            (func.coalesce(last.c.round, 0) + 1).label("round"),
            ends.label("ends"),
        )
        .outerjoin(sums, sums.c.batch_id == batch.c.id)
        .outerjoin(last, last.c.batch_id == batch.c.id)
        .where(
            *closed,
            func.coalesce(sums.c.open, 0) <= 0,
            or_(
                last.c.ends < ends,
                and_(
                    last.c.ends.is_(None),
                    or_(
                        batch.c.closed_at >= since,
                        batch.c.cancelled_at >= since,
                        sums.c.newest_at >= since,
                    ),
                ),
            ),
        )
        .order_by(batch.c.id)
        .limit(PAGE)
    )


def _sums(batches: Any) -> Any:
    """Return how many tasks of each batch are open, and how many became final and when."""
    counts = tally.counts(lambda column: [column["batch_id"].in_(batches)])
    is_loaded = and_(
        counts.c.state == int(Status.PENDING), counts.c.outcome == TallyOutcome.LOADED.value
    )
    is_final = counts.c.state.in_(_FINAL)
    is_open = case((is_loaded, counts.c.delta), (is_final, -counts.c.delta), else_=0)
    return (
        select(
            counts.c.batch_id,
            func.sum(is_open).label("open"),
            func.sum(case((is_final, counts.c.entered), else_=0)).label("ends"),
            func.max(counts.c.newest_at).label("newest_at"),
        )
        .group_by(counts.c.batch_id)
        .subquery()
    )


def write(connection: Connection, group: str, ids: Sequence[int]) -> int:
    """Write the ends of those of these batches that are done, and order their hooks.

    Return how many. The rows of the batches are locked, so no load begins meanwhile, and no other
    agent writes the same end.
    """
    locked = select(batch.c.id).where(batch.c.id.in_(ids)).order_by(batch.c.id)
    connection.execute(locked.with_for_update()).all()
    rows = done(connection, group, ids)
    for row in rows:
        (status,) = batch_status.read_batches(connection, group, row.name)
        counts = {name: status.counts[name] for name in _COUNTS}
        told = {"counts": counts, "cost": status.cost}
        end = {"batch_id": row.id, "round": row.round, "ends": row.ends}
        connection.execute(insert(batch_end).values(**end, counts=orjson.dumps(told).decode()))
    orders = [
        hook_orders.order(
            group,
            HookEvent.BATCH_DONE,
            {"task_id": 0, "batch_id": row.id, "type": "", "route": "", "attempts": row.round},
            status="",
        )
        for row in rows
    ]
    hook_orders.place(connection, orders)
    return len(rows)


def read(connection: Connection, batch_id: int, number: int) -> dict[str, Any] | None:
    """Return an end as its hook is told it; None if it is not written."""
    query = (
        select(batch.c.group_name, batch.c.name, batch_end.c.ended_at, batch_end.c.counts)
        .join(batch, batch.c.id == batch_end.c.batch_id)
        .where(batch_end.c.batch_id == batch_id, batch_end.c.round == number)
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    return {
        "group": row.group_name,
        "batch": row.name,
        "round": number,
        "ended_at": written(row.ended_at),
        **orjson.loads(row.counts),
    }
