"""The search for waiting tasks that may join a look of a guard, page after page."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Row, and_, exists, literal, or_, select

from docllm.schemas.ledger.query_plans import along_open
from docllm.schemas.ledger.sql import LONG_AGO_TIME, UtcTime, utc_now
from docllm.schemas.ledger.tables import guard_look, task, task_input, waiting
from docllm.schemas.task.guard import ANY_ROUTE, Guard
from docllm.schemas.task.states import Status
from docllm.schemas.task.waits import WaitReason, guard_key

PAGE = 100  # tasks whose values are read at once
PAGES = 10  # of one search: it stays short

# Tasks that a guard moved are called up first, then those that are due anyway.
_STATUSES = (Status.RETRYING, Status.PENDING)

# A task's id, fence and due time.
WaitingTask = Row[tuple[int, int, datetime]]
# Returns the routes that a task's value may take, the first one first.
RoutesOf = Callable[[bytes], Iterable[str]]


@dataclass(frozen=True, slots=True)
class SearchPosition:
    """Where a search goes on: after this task, in the order of status, due time and id."""

    status: Status = _STATUSES[0]
    due_at: datetime = LONG_AGO_TIME
    task_id: int = 0


BEGINNING = SearchPosition()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Tasks that may join the look, with their fences, and where the next search goes on.

    If the search has come to the end of the waiting tasks, `position` is BEGINNING.
    """

    fences: dict[int, int]
    position: SearchPosition


def of_guard(subject: Guard) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions on a task to belong to the guard: its batch, and its type."""
    return task.c.batch_id == subject.batch_id, task.c.type == subject.type


def search(
    connection: Connection,
    group: str,
    raised: Guard,
    position: SearchPosition,
    routes_of: RoutesOf,
) -> SearchResult:
    """Search the next pages for tasks that may take the guarded route.

    In a page, tasks that begin on the guarded route go first; others have it as a fallback.
    """
    for _ in range(PAGES):
        rows = _page(connection, group, raised, position)
        if fences := _fitting(connection, rows, raised, routes_of):
            return SearchResult(fences, position)
        if len(rows) == PAGE:
            position = SearchPosition(position.status, rows[-1].due_at, rows[-1].id)
        elif position.status == _STATUSES[-1]:
            return SearchResult({}, BEGINNING)
        else:
            position = SearchPosition(_STATUSES[-1])
    return SearchResult({}, position)


def _page(
    connection: Connection, group: str, raised: Guard, after: SearchPosition
) -> list[WaitingTask]:
    """Return the next tasks that a guard moved; or those that are due anyway."""
    is_moved = after.status == Status.RETRYING
    due_at = waiting.c.due_at if is_moved else task.c.due_at
    after_at = literal(after.due_at, UtcTime)
    query = select(task.c.id, task.c.fence, due_at).where(
        *of_guard(raised),
        task.c.status == int(after.status),
        due_at >= after_at,
        or_(due_at > after_at, and_(due_at == after_at, task.c.id > after.task_id)),
        ~exists().where(guard_look.c.guard_id == raised.id, guard_look.c.task_id == task.c.id),
    )
    in_order = query.order_by(due_at, task.c.id).limit(PAGE)
    if not is_moved:
        return list(connection.execute(along_open(in_order.where(task.c.due_at <= utc_now()))))
    of_row = and_(task.c.id == waiting.c.task_id, task.c.fence == waiting.c.fence)
    moved = in_order.join_from(waiting, task, of_row).where(
        waiting.c.group_name == group,
        waiting.c.reason == WaitReason.GUARD.value,
        waiting.c.reason_key == guard_key(raised.batch_id, raised.type),
    )
    return list(connection.execute(moved))


def _fitting(
    connection: Connection,
    rows: list[WaitingTask],
    raised: Guard,
    routes_of: RoutesOf,
) -> dict[int, int]:
    """Return the tasks that may take the guarded route, by its place among their routes."""
    fences = {row.id: row.fence for row in rows}
    if raised.route == ANY_ROUTE:
        return fences
    places = {}
    for task_id, body in _bodies(connection, fences).items():
        routes = list(routes_of(body))
        if raised.route in routes:
            places[task_id] = routes.index(raised.route)
    order = [task_id for task_id in fences if task_id in places]
    return {task_id: fences[task_id] for task_id in sorted(order, key=places.__getitem__)}


def _bodies(connection: Connection, task_ids: Collection[int]) -> dict[int, bytes]:
    query = select(task_input.c.task_id, task_input.c.body).where(
        task_input.c.task_id.in_(sorted(task_ids))
    )
    return {row.task_id: bytes(row.body) for row in connection.execute(query)}
