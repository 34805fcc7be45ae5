"""The plan of a replay: what it would do and cost. Read only.

Tested by tests/contract/test_ledger_replay_runs.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from sqlalchemy import Connection, Select, case, func, select

from producer.input.estimate import Estimate
from producer.input.lines import Good, read_line
from producer.ledger import dead_letters, selection_query
from producer.ledger.dead_letters import Group, TotalCost
from producer.ledger.export import Read
from producer.ledger.outbox import QUARANTINE, TASK
from producer.ledger.replay_runs import ReplayRequest
from producer.replay.runs import candidates
from schemas.ledger.sql import utc_now
from schemas.ledger.tables import batch, task, task_attempt, task_input

SAMPLE = 2000
_PAGE = 20  # inputs that are in memory at once


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The items that a request would replay, and those that it would leave.

    `batches` counts cancelled tasks, `groups` counts dead letters and records. `late`: tasks to
    replay although they are past their deadline. `capped`: tasks left because they reached the cap
    of replays. `closed`: tasks left dead in a cancelled batch. `quarantined`: records that match
    but that the request does not name.
    """

    tasks: int
    records: int
    groups: Sequence[Group]
    batches: Sequence[tuple[str, int]]
    spent: TotalCost
    late: int
    capped: int
    closed: int
    quarantined: int


def plan(connection: Connection, group: str, request: ReplayRequest) -> ReplayPlan:
    """Return the plan of a request; the counts are exact at this moment."""
    selection = request.selection
    tasks = _first(candidates(group, request, TASK), selection.limit)
    capped, closed = _tasks_left(connection, group, request)
    batches = _batches(connection, tasks) if selection.cancelled else []
    dead = [] if selection.cancelled else dead_letters.of_tasks(connection, tasks)
    count = sum(group_of_error.tasks for group_of_error in dead) + sum(
        number for _, number in batches
    )
    room = None if selection.limit is None else max(0, selection.limit - count)
    records = dead_letters.of_records(
        connection, _first(candidates(group, request, QUARANTINE), room)
    )
    return ReplayPlan(
        tasks=count,
        records=sum(group_of_error.count for group_of_error in records),
        groups=dead_letters.largest_first(dead + records),
        batches=batches,
        spent=_spent(connection, tasks) if selection.cancelled else _sum(dead),
        late=_count(connection, tasks.where(task.c.expires_at < utc_now())),
        capped=capped,
        closed=closed,
        quarantined=0
        if selection.names_records
        else _count(connection, selection_query.records(selection, group)),
    )


def _tasks_left(connection: Connection, group: str, request: ReplayRequest) -> tuple[int, int]:
    """Return how many selected tasks are at the cap, and how many others are in closed batches.

    A closed batch is a cancelled batch.
    """
    capped = func.coalesce(func.sum(case((task.c.replays >= request.cap, 1), else_=0)), 0)
    is_closed = (task.c.replays < request.cap) & batch.c.cancelled_at.is_not(None)
    closed = func.coalesce(func.sum(case((is_closed, 1), else_=0)), 0)
    row = connection.execute(
        selection_query.tasks(request.selection, group).with_only_columns(capped, closed)
    ).one()
    return int(row[0]), 0 if request.selection.cancelled else int(row[1])


def _sum(groups: Sequence[Group]) -> TotalCost:
    costs = [cost.spent for cost in groups]
    return TotalCost(
        *(sum(getattr(cost, field.name) for cost in costs) for field in fields(TotalCost))
    )


def measure(read: Read, group: str, request: ReplayRequest, tasks: int, estimate: Estimate) -> None:
    """Add the cost of one more attempt of `tasks` tasks to the estimate.

    The cost is measured on the first tasks.
    """
    selected = candidates(group, request, TASK)
    sample = selected.order_by(selected.selected_columns[0]).limit(min(SAMPLE, tasks))
    ids = read(lambda c: list(c.execute(sample).scalars())) if tasks else []
    for start in range(0, len(ids), _PAGE):
        for body in read(partial(_inputs, ids=ids[start : start + _PAGE])):
            line = read_line(0, body)
            if isinstance(line, Good):
                estimate.add(line)
    if estimate.tasks:
        estimate.scale(tasks)


def _inputs(connection: Connection, *, ids: Sequence[int]) -> list[bytes]:
    query = select(task_input.c.body).where(task_input.c.task_id.in_(ids))
    return list(connection.execute(query).scalars())


def _first(query: Select[Any], limit: int | None) -> Select[Any]:
    """Return the query for its first rows only.

    It uses a derived table, because MySQL takes no LIMIT inside IN.
    """
    if limit is None:
        return query
    column = query.selected_columns[0]
    first = query.order_by(column).limit(limit).subquery()
    return query.where(column.in_(select(first.c.id)))


def _count(connection: Connection, query: Select[Any]) -> int:
    return int(connection.execute(query.with_only_columns(func.count())).scalar_one())


def _batches(connection: Connection, tasks: Select[Any]) -> list[tuple[str, int]]:
    query = (
        tasks.with_only_columns(batch.c.name, func.count())
        .group_by(batch.c.name)
        .order_by(batch.c.name)
    )
    return [(row[0], int(row[1])) for row in connection.execute(query)]


def _spent(connection: Connection, tasks: Select[Any]) -> TotalCost:
    sums = [
        func.coalesce(func.sum(task_attempt.c[name]), 0)
        for name in ("tokens_in", "tokens_out", "cost_micro")
    ]
    query = tasks.join(task_attempt, task_attempt.c.task_id == task.c.id).with_only_columns(
        func.count(), *sums
    )
    return TotalCost(*(int(value) for value in connection.execute(query).one()))
