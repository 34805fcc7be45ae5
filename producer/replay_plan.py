"""What a replay would do and cost, before it is done. Read only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, select

from producer import dead, selected
from producer.dead import Group, Spent
from producer.estimate import Estimate
from producer.lines import Good, read_line
from producer.outbox import QUARANTINE, TASK
from producer.replay_runs import Wish, candidates
from schemas.sql import utc_now
from schemas.tables import batch, quarantine, task, task_attempt, task_input

SAMPLE = 2000
_PAGE = 20  # inputs that are in memory at once


@dataclass(frozen=True, slots=True)
class Plan:
    """What a wish takes, and what it leaves. `batches` counts cancelled tasks, `groups` dead letters and records.

    `late`: taken, though past their deadline; `capped`: left at the cap of replays; `closed`: left dead in a batch that is
    cancelled; `quarantined`: records that match and are not named.
    """

    tasks: int
    records: int
    groups: Sequence[Group]
    batches: Sequence[tuple[str, int]]
    spent: Spent
    late: int
    capped: int
    closed: int
    quarantined: int


def plan(connection: Connection, group: str, wish: Wish) -> Plan:
    """Return what a wish takes; the counts are exact at this moment."""
    chosen = wish.selection
    tasks = _first(candidates(group, wish, TASK), task.c.id, chosen.limit)
    count = _count(connection, tasks)
    rest = None if chosen.limit is None else chosen.limit - count
    records = _first(candidates(group, wish, QUARANTINE), quarantine.c.id, rest)
    matching = selected.tasks(chosen, group)
    closed = matching.where(task.c.replays < wish.cap, batch.c.cancelled_at.is_not(None))
    return Plan(
        tasks=count,
        records=_count(connection, records),
        groups=() if chosen.cancelled else dead.grouped(connection, tasks, records),
        batches=_batches(connection, tasks) if chosen.cancelled else (),
        spent=_spent(connection, tasks),
        late=_count(connection, tasks.where(task.c.expires_at < utc_now())),
        capped=_count(connection, matching.where(task.c.replays >= wish.cap)),
        closed=0 if chosen.cancelled else _count(connection, closed),
        quarantined=0 if chosen.names_records else _count(connection, selected.records(chosen, group)),
    )


def measure(
    read: Callable[[Callable[[Connection], list[tuple[int, bytes]]]], list[tuple[int, bytes]]],
    group: str,
    wish: Wish,
    tasks: int,
    estimate: Estimate,
) -> None:
    """Add to the estimate what one more attempt of so many tasks takes, measured on the first ones."""
    after = 0
    while estimate.tasks < min(tasks, SAMPLE) and (inputs := read(partial(_inputs, group=group, wish=wish, after=after))):
        after = inputs[-1][0]
        lines = (read_line(0, value) for _, value in inputs)
        for line in lines:
            if isinstance(line, Good):
                estimate.add(line)
    if estimate.tasks:
        estimate.scale(tasks)


def _inputs(connection: Connection, *, group: str, wish: Wish, after: int) -> list[tuple[int, bytes]]:
    page = candidates(group, wish, TASK).where(task.c.id > after).order_by(task.c.id).limit(_PAGE)
    ids = [row.id for row in connection.execute(page)]
    query = select(task_input.c.task_id, task_input.c.body).where(task_input.c.task_id.in_(ids)).order_by(task_input.c.task_id)
    return [(row.task_id, row.body) for row in connection.execute(query)]


def _first(query: Select[Any], column: ColumnElement[int], limit: int | None) -> Select[Any]:
    """Return the query for its first rows alone; a derived table, since MySQL takes no LIMIT inside IN."""
    if limit is None:
        return query
    first = query.order_by(column).limit(limit).subquery()
    return query.where(column.in_(select(first.c.id)))


def _count(connection: Connection, query: Select[Any]) -> int:
    return int(connection.execute(query.with_only_columns(func.count())).scalar_one())


def _batches(connection: Connection, tasks: Select[Any]) -> list[tuple[str, int]]:
    query = tasks.with_only_columns(batch.c.name, func.count()).group_by(batch.c.name).order_by(batch.c.name)
    return [(row[0], int(row[1])) for row in connection.execute(query)]


def _spent(connection: Connection, tasks: Select[Any]) -> Spent:
    sums = [func.coalesce(func.sum(task_attempt.c[name]), 0) for name in ("tokens_in", "tokens_out", "cost_micro")]
    query = tasks.join(task_attempt, task_attempt.c.task_id == task.c.id).with_only_columns(func.count(), *sums)
    return Spent(*(int(value) for value in connection.execute(query).one()))
