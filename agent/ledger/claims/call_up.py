"""Calls up tasks that wait in a tier for their route, their type or the hours of their type.

Any number of agents may do this: each statement checks its own condition, so a task is called up
once and the other agents find nothing to do. Tasks that wait for another reason are left alone.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    String,
    and_,
    bindparam,
    or_,
    select,
    type_coerce,
    update,
)

from docllm.agent.judge.guard_rule import CLOSED_AFTER, CLOSED_BEFORE
from docllm.agent.ports import Order
from docllm.producer.ledger import outbox
from docllm.schemas.ledger.sql import utc_now
from docllm.schemas.ledger.tables import batch, task, task_attempt
from docllm.schemas.task.failures import CALLED_UP, AttemptOutcome, ErrorClass
from docllm.schemas.task.states import Status

SCAN = 2000  # waiting tasks that one step reads
MANY = 500  # most tasks that one step calls up

_LATER = and_(task.c.status == int(Status.RETRYING), task.c.due_at > utc_now())
_WAITING = (
    select(task.c.id, task.c.fence, task.c.due_at).where(_LATER).order_by(task.c.due_at, task.c.id)
)
# Compared as text, because SQLite stores times as text, with milliseconds.
_DUE = type_coerce(task.c.due_at, String)
_AFTER_CURSOR = and_(
    bindparam("due_at") <= _DUE, or_(bindparam("due_at") < _DUE, task.c.id > bindparam("after_id"))
)
_MOVES = (
    select(
        task_attempt.c.task_id,
        task_attempt.c.fence,
        task_attempt.c.error_class,
        task_attempt.c.error_text,
        task.c.type,
    )
    .join(task, task.c.id == task_attempt.c.task_id)
    .join(batch, batch.c.id == task.c.batch_id)
    .where(
        task_attempt.c.task_id.in_(bindparam("ids", expanding=True)),
        batch.c.group_name == bindparam("of_group"),
    )
    .where(
        task_attempt.c.outcome == AttemptOutcome.MOVED,
        task_attempt.c.error_class.in_(CALLED_UP),
    )
)


@dataclass(frozen=True, slots=True)
class CallUpCursor:
    """The position of a walk over the waiting tasks: the last task read."""

    due_at: str
    task_id: int


@dataclass(frozen=True, slots=True)
class CallUpPage:
    """One step of a walk: the orders that it wrote, and the next position (None at the end).

    `for_routes` says whether some of the tasks had waited for a route.
    """

    orders: list[Order]
    cursor: CallUpCursor | None
    for_routes: bool


def step(
    connection: Connection,
    group: str,
    is_wanted: Callable[[str], bool],
    limit: int,
    cursor: CallUpCursor | None,
    knows_type: Callable[[str], bool] = lambda _: False,
    is_awake: Callable[[str], bool] = lambda _: False,
) -> CallUpPage:
    """Call up tasks from the page of tasks after `cursor`.

    These are at most `limit` tasks that wait for a route that `is_wanted`, and the tasks whose type
    is now known here or whose type's hours have begun. Of a task that no route was allowed,
    `is_wanted` gets the text that says so.
    """
    query = _WAITING.limit(SCAN)
    if cursor is None:
        rows = connection.execute(query).all()
    else:
        rows = connection.execute(
            query.where(_AFTER_CURSOR), {"due_at": cursor.due_at, "after_id": cursor.task_id}
        ).all()
    for_route: set[tuple[int, int]] = set()
    for_type: set[tuple[int, int]] = set()
    for move in _moves(connection, group, [row.id for row in rows]):
        if move.error_class != ErrorClass.ROUTE:
            runs = knows_type if move.error_class == ErrorClass.UNKNOWN_TYPE else is_awake
            if runs(move.type):
                for_type.add((move.task_id, move.fence + 1))
        elif is_wanted(_route_of(move.error_text)):
            for_route.add((move.task_id, move.fence + 1))
    moved = [row for row in rows if (row.id, row.fence) in for_route | for_type]
    chosen = _first(moved, for_route, limit)
    fences = {(row.id, row.fence) for row in chosen}
    is_called = task.c.id.in_(sorted(task_id for task_id, _ in fences))
    orders = make_due(connection, group, _LATER, is_called, fences=fences) if fences else []
    if len(moved) > len(chosen):
        cursor = _cursor_at(connection, chosen[-1])
    else:
        cursor = _cursor_at(connection, rows[-1]) if len(rows) == SCAN else None
    return CallUpPage(orders, cursor, not fences.isdisjoint(for_route))


def _first(
    moved: Sequence[Row[Any]], for_route: Collection[tuple[int, int]], limit: int
) -> list[Row[Any]]:
    """Return the first tasks, as many as a step may call up, `limit` of them for their route."""
    chosen: list[Row[Any]] = []
    of_routes = 0
    for row in moved[:MANY]:
        of_routes += (row.id, row.fence) in for_route
        if of_routes > limit:
            break
        chosen.append(row)
    return chosen


def _cursor_at(connection: Connection, row: Row[Any]) -> CallUpCursor:
    exact = "milliseconds" if connection.dialect.name == "sqlite" else "microseconds"
    return CallUpCursor(row.due_at.isoformat(" ", exact), row.id)


def _moves(connection: Connection, group: str, ids: Sequence[int]) -> Sequence[Any]:
    """Return the moves of these tasks for a route, an unknown type or hours that had not begun."""
    if not ids:
        return ()
    return connection.execute(_MOVES, {"ids": sorted(ids), "of_group": group}).all()


def _route_of(text: str) -> str:
    """Return the closed route; if no route was allowed, the whole text, which names the rule."""
    return text.removeprefix(CLOSED_BEFORE).removesuffix(CLOSED_AFTER)


def make_due(
    connection: Connection,
    group: str,
    *conditions: ColumnElement[bool],
    fences: Collection[tuple[int, int]] | None = None,
) -> list[Order]:
    """Make the tasks that meet the conditions due now, and order records for them.

    If `fences` is given, only these (task, fence) are made due.
    """
    of_task = (task.c.id, task.c.fence, task.c.lane)
    query = select(*of_task).where(*conditions).order_by(task.c.id)
    locked = connection.execute(query.with_for_update(skip_locked=True)).all()
    rows = [row for row in locked if fences is None or (row.id, row.fence) in fences]
    if not rows:
        return []
    connection.execute(
        update(task)
        .where(task.c.id.in_([row.id for row in rows]))
        .values(due_at=utc_now(), carrier=outbox.LANE_CARRIER)
    )
    return outbox.place_in_lanes(connection, group, rows)
