"""The plan of a replay: what it would do and cost. Read only."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, select

from docllm.producer.input.estimate import Estimate
from docllm.producer.input.lines import ValidLine, read_line
from docllm.producer.ledger.dead_letters import error_groups, failure_groups, selection_query
from docllm.producer.ledger.dead_letters.error_groups import ErrorGroup
from docllm.producer.ledger.dead_letters.failure_groups import NOTHING, TotalCost
from docllm.producer.ledger.outbox import QUARANTINE, TASK
from docllm.producer.ledger.replay_progress import ReplayRequest
from docllm.producer.ledger.results.export import Read
from docllm.producer.ledger.tally import SPENT
from docllm.producer.replay.runs import candidates
from docllm.schemas.ledger.query_plans import unindexed
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.ledger.tables import batch, dead_letter, task, task_attempt, task_input
from docllm.schemas.task.failures import AttemptOutcome
from docllm.schemas.task.line.overrides import overridden

SAMPLE = 2000
MAX_READ = 10_000  # dead letters of a kind that are read one by one
_PAGE = 20  # inputs that are in memory at once


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The items that a request would replay, and those that it would leave.

    `batches` counts cancelled tasks, `groups` counts dead letters and records. `late`: tasks to
    replay although they are past their deadline; MAX_READ stands for that many or more. `capped`:
    tasks left because they reached the cap of replays. `closed`: tasks left dead in a cancelled or
    archived batch. `quarantined`: records that match but that the request does not name.
    """

    tasks: int = 0
    records: int = 0
    groups: Sequence[ErrorGroup] = ()
    batches: Sequence[tuple[str, int]] = ()
    spent: TotalCost = NOTHING
    late: int = 0
    capped: int = 0
    closed: int = 0
    quarantined: int = 0


def plan(connection: Connection, group: str, request: ReplayRequest) -> ReplayPlan:
    """Return the plan of a request; the counts are exact at this moment, `late` up to MAX_READ."""
    selection = request.selection
    if selection.cancelled:
        return _of_cancelled(connection, group, request)
    dead = _dead(connection, group, request)
    room = None if selection.limit is None else max(0, selection.limit - dead.tasks)
    records = error_groups.of_records(
        connection, _first(candidates(connection, group, request, QUARANTINE), room)
    )
    return replace(
        dead,
        records=sum(group_of_error.count for group_of_error in records),
        groups=error_groups.largest_first([*dead.groups, *records]),
        quarantined=0
        if selection.names_records
        else _count(connection, selection_query.records(selection, group)),
    )


def _of_cancelled(connection: Connection, group: str, request: ReplayRequest) -> ReplayPlan:
    """Return the plan for cancelled tasks, which have no error, so they are counted by batch."""
    tasks = _first(candidates(connection, group, request, TASK), request.selection.limit)
    selected = selection_query.tasks(connection, request.selection, group)
    batches = _batches(connection, tasks)
    return ReplayPlan(
        tasks=sum(number for _, number in batches),
        batches=batches,
        spent=_spent(connection, tasks),
        late=_count(connection, tasks.where(task.c.expires_at < utc_now())),
        capped=_count(connection, selected.where(task.c.replays >= request.cap)),
        quarantined=_count(connection, selection_query.records(request.selection, group)),
    )


def _dead(connection: Connection, group: str, request: ReplayRequest) -> ReplayPlan:
    """Return the plan of a request for dead letters alone.

    The roll-ups have every number except that of letters at the cap, which are read one by one if
    they are few. Otherwise the dead letters are counted.
    """
    if not request.selection.with_tasks:
        return ReplayPlan()
    capped = None
    if failure_groups.answers(connection, group, request.selection):
        capped = _read_capped(connection, group, request)
    if capped is None:
        return _selection_by_letter(connection, group, request)
    failures = failure_groups.read_groups(connection, group, request.selection)
    expires_at = dead_letter.c.expires_at
    uncapped = failure_groups.without(failures, capped)
    open_ones = [failure for failure in uncapped if not failure.batch_ended]
    closed = sum(failure.dead for failure in uncapped if failure.batch_ended)
    if request.selection.limit is not None:
        tasks = candidates(connection, group, request, TASK)
        first = _first(tasks, request.selection.limit)
        groups = error_groups.of_tasks(connection, first)
        late = _late(connection, first, unindexed(expires_at))
        return _of_dead(groups, late, len(capped), closed)
    groups = error_groups.largest_first(error_groups.of_failures(open_ones))
    groups = error_groups.with_examples(connection, groups, open_ones, request.selection)
    tasks = candidates(connection, group, request, TASK, "ix_dead_expires")
    return _of_dead(groups, _late(connection, tasks, expires_at), len(capped), closed)


def _of_dead(groups: Sequence[ErrorGroup], late: int, capped: int, closed: int) -> ReplayPlan:
    """Return the plan for the dead letters of these groups."""
    return ReplayPlan(
        tasks=sum(group.tasks for group in groups),
        groups=groups,
        spent=sum((group.spent for group in groups), NOTHING),
        late=late,
        capped=capped,
        closed=closed,
    )


def _selection_by_letter(connection: Connection, group: str, request: ReplayRequest) -> ReplayPlan:
    """Return what a request does with dead letters, which are counted one by one."""
    selected = selection_query.tasks(connection, request.selection, group)
    at_cap = unindexed(dead_letter.c.replays) >= request.cap
    tasks = _first(candidates(connection, group, request, TASK), request.selection.limit)
    ready = selection_query.ready(request.selection, request.cap)
    return _of_dead(
        error_groups.of_tasks(connection, tasks),
        _late(connection, tasks, unindexed(dead_letter.c.expires_at)),
        _count(connection, selected.where(at_cap)),
        _count(connection, selected.where(~at_cap, ~ready)),
    )


def _read_capped(
    connection: Connection, group: str, request: ReplayRequest
) -> list[Row[Any]] | None:
    """Return the selected dead letters at the cap; None if there are MAX_READ or more."""
    selected = selection_query.tasks(connection, request.selection, group, "ix_dead_replays")
    columns = (dead_letter.c[name] for name in failure_groups.OF_LETTER)
    query = selected.with_only_columns(*columns).where(dead_letter.c.replays >= request.cap)
    rows = list(connection.execute(query.limit(MAX_READ)))
    return rows if len(rows) < MAX_READ else None


def _late(connection: Connection, tasks: Select[Any], expires_at: ColumnElement[Any]) -> int:
    """Return how many of these dead letters are past their deadline, MAX_READ at most."""
    late = tasks.where(expires_at < utc_now()).limit(MAX_READ).subquery()
    return int(connection.execute(select(func.count()).select_from(late)).scalar_one())


def measure(read: Read, group: str, request: ReplayRequest, tasks: int, estimate: Estimate) -> None:
    """Add the cost of one more attempt of `tasks` tasks to the estimate.

    The cost is measured on the first tasks.
    """
    most = min(SAMPLE, tasks)
    ids = read(partial(_first_ids, group=group, request=request, most=most)) if tasks else []
    for start in range(0, len(ids), _PAGE):
        for body in read(partial(_inputs, ids=ids[start : start + _PAGE])):
            changes = request.overrides
            line = read_line(0, overridden(body, changes) if changes else body)
            if isinstance(line, ValidLine):
                estimate.add(line)
    if estimate.tasks:
        estimate.scale(tasks)


def _first_ids(
    connection: Connection, *, group: str, request: ReplayRequest, most: int
) -> list[int]:
    selected = candidates(connection, group, request, TASK)
    sample = selected.order_by(selected.selected_columns[0]).limit(most)
    return list(connection.execute(sample).scalars())


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
    sums = [func.coalesce(func.sum(task_attempt.c[name]), 0) for name in SPENT]
    of_task = and_(
        task_attempt.c.task_id == task.c.id, task_attempt.c.outcome != AttemptOutcome.LOST
    )
    query = tasks.join(task_attempt, of_task).with_only_columns(func.count(), *sums)
    return TotalCost(*(int(value) for value in connection.execute(query).one()))
