"""Ends raised guards, as SQL: looks, openings, and the call-up of the tasks they moved.

A look tries some tasks of the guard. Every agent runs these statements. Each statement checks its
own condition, so that one agent wins and the others find nothing to do.

How a guard moves from state to state: `docs/explanation/architecture.md`, "Guards".
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, delete, literal, select, update

from docllm.agent.judge.guard_rule import WINDOW_S, Look, next_in_s, next_size
from docllm.agent.ledger.claims.waking import call_up_told, make_due
from docllm.agent.ledger.guards.key_history import PROBE_BATCH, route_works
from docllm.agent.ledger.guards.look_search import (
    BEGINNING,
    RoutesOf,
    SearchPosition,
    of_guard,
    search,
)
from docllm.agent.ports import Order
from docllm.producer.ledger import tally
from docllm.producer.ledger.waiting_rows import WaitingFor
from docllm.schemas.ledger.bulk import insert_rows
from docllm.schemas.ledger.query_plans import along_open
from docllm.schemas.ledger.sql import UtcTime, utc_after, utc_now
from docllm.schemas.ledger.tables import guard, guard_look, task, task_result
from docllm.schemas.task.failures import TallyOutcome
from docllm.schemas.task.guard import ANY_ROUTE, Guard, GuardCause
from docllm.schemas.task.states import WAITING, Status
from docllm.schemas.task.waits import WaitReason, guard_key

PATIENCE_S = 3.0  # so long only tasks that an agent holds are offered a look's places
# For this long after the opening, an agent with an outdated copy of the guard may still move tasks.
LINGER_S = 10.0

_RAISED = guard.c.opened_at.is_(None)
_DUE = (guard.c.look_left < 0) & (guard.c.probe_at <= utc_now())

# Guards whose route is being asked by a prompt, with their `look_at` when that began.
RoutePromptGuards = Sequence[tuple[int, datetime]]


# ---- the beginning of a look


def take_prompt_turn(
    connection: Connection, group: str, route: str, wait_s: float
) -> RoutePromptGuards:
    """Take the turn to ask a route for all its due guards; they are due again after `wait_s`."""
    due = (
        guard.c.group_name == group,
        guard.c.route == route,
        guard.c.cause != GuardCause.WORKER_LOST.value,
        _RAISED,
        _DUE,
    )
    rows = connection.execute(
        select(guard.c.id, guard.c.look_at).where(*due).order_by(guard.c.id).with_for_update()
    ).all()
    if rows:
        put_off_rows = update(guard).where(guard.c.id.in_([row.id for row in rows]))
        connection.execute(put_off_rows.values(probe_at=utc_after(wait_s)))
    return [(row.id, row.look_at) for row in rows]


def route_answered(connection: Connection, route: str) -> None:
    """Record that a route answered our own prompt.

    Like a task's success, this proves that the route works.
    """
    answered = tally.TallyChange(
        batch_id=PROBE_BATCH,
        type="",
        route=route,
        state=Status.SUCCEEDED,
        outcome=TallyOutcome.PROBE,
    )
    tally.write(connection, [answered])


def begin(connection: Connection, group: str, raised: Guard) -> bool:
    """Begin the look that is due; return False if the route must be asked first.

    The route need not be asked if anything has succeeded on it since the last look. A prompt says
    nothing about lost agents: their look begins without one, and its tasks may die only if
    something else of the group succeeded.
    """
    route_worked = route_works(connection, group, raised.route, since=raised.look_at)
    if not route_worked and raised.cause != GuardCause.WORKER_LOST:
        return False
    _begin(connection, [(raised.id, raised.look_at)], _DUE, vouched=route_worked)
    return True


def begin_prompted(connection: Connection, asked: RoutePromptGuards, *, answered: bool) -> None:
    """Begin the looks that waited for the answer of their route.

    If the route did not answer, each look is not `vouched`.
    """
    _begin(connection, asked, guard.c.look_left < 0, vouched=answered)


def _begin(
    connection: Connection, guards: RoutePromptGuards, due: ColumnElement[bool], *, vouched: bool
) -> None:
    """Begin the looks of these guards.

    `vouched`: the route works. Then the look has all its places, and its tasks may die. Otherwise
    the look has one task, which may not die.
    """
    places = (
        {"look_left": guard.c.look_size, "vouched": 1}
        if vouched
        else {"look_size": 1, "look_left": 1, "vouched": 0}
    )
    for guard_id, look_at in guards:
        unchanged = (
            guard.c.id == guard_id,
            guard.c.look_at == literal(look_at, UtcTime),
            guard.c.cause != GuardCause.NO_SUCCESS.value,
        )
        began = (
            update(guard)
            .where(*unchanged, _RAISED, due)
            .values(look_at=utc_now(), probe_at=utc_now(), **places)
        )
        if connection.execute(began).rowcount:
            connection.execute(delete(guard_look).where(guard_look.c.guard_id == guard_id))


# ---- the tasks of a look


def join_look(connection: Connection, guard_id: int, task_id: int) -> bool:
    """Return whether this task may run in the guard's look; let it join if a place is free.

    A task that joined before may run only with the fence with which it joined. Safe to run twice.
    """
    fence = connection.execute(select(task.c.fence).where(task.c.id == task_id)).scalar()
    of_task = (guard_look.c.guard_id == guard_id, guard_look.c.task_id == task_id)
    joined = connection.execute(select(guard_look.c.fence).where(*of_task)).scalar()
    if fence is None or joined is not None:
        return joined is not None and joined == fence
    return bool(_join(connection, guard_id, {task_id: fence}))


def _join(connection: Connection, guard_id: int, fences: dict[int, int]) -> list[int]:
    """Let as many of these tasks join the look as it has free places; return their ids."""
    free = select(guard.c.look_left).where(guard.c.id == guard_id, _RAISED).with_for_update()
    chosen = list(fences)[: max(0, connection.execute(free).scalar() or 0)]
    if chosen:
        places_left = guard.c.look_left - len(chosen)
        connection.execute(
            update(guard).where(guard.c.id == guard_id).values(look_left=places_left)
        )
        rows = [
            {"guard_id": guard_id, "task_id": task_id, "fence": fences[task_id]}
            for task_id in chosen
        ]
        insert_rows(connection, guard_look, rows, keep=True)
    return chosen


def call_up_for_look(
    connection: Connection, group: str, raised: Guard, routes_of: RoutesOf, position: SearchPosition
) -> tuple[list[Order], SearchPosition]:
    """Call up waiting tasks for the free places of a look, searching them from `position` on.

    Returns the orders for their records, and where the next search goes on. One agent does so every
    few seconds. If no task is left that waits for the look, its free places are closed.
    """
    turn = update(guard).where(
        guard.c.id == raised.id,
        _RAISED,
        guard.c.look_left > 0,
        guard.c.look_at == literal(raised.look_at, UtcTime),
    )
    turn = turn.where(guard.c.probe_at <= utc_after(-PATIENCE_S)).values(probe_at=utc_now())
    if connection.execute(turn).rowcount == 0:
        return [], position
    # The guard's row is locked now, and rows of `task` follow, against the order of row locks. But
    # `make_due` skips tasks that are locked, so this transaction never waits for a task.
    result = search(connection, group, raised, position, routes_of)
    if not result.fences and result.position == BEGINNING:
        connection.execute(
            update(guard).where(guard.c.id == raised.id, guard.c.look_left > 0).values(look_left=0)
        )
    chosen = _join(connection, raised.id, result.fences)
    if not chosen:
        return [], result.position
    orders = make_due(connection, group, chosen)
    return orders, result.position


# ---- the end of a look, and of the guard


def end_look_if_over(connection: Connection, group: str, raised: Guard, probe_s: float) -> str:
    """End a look that is over, and set the time of the next one.

    Returns why the guard may be opened, or an empty text if it may not.
    """
    if raised.cause == GuardCause.NO_SUCCESS:
        works = route_works(connection, group, raised.route, since=raised.raised_at)
        return "something succeeded on its route" if works else ""
    if not raised.looking:
        return ""
    look = _look(connection, raised)
    if look.succeeded:
        return "a task of its look succeeded"
    if look.over(places=raised.look_left, late=raised.look_age_s > probe_s):
        size = next_size(look, raised.look_size, vouched=raised.vouched)
        after_s = next_in_s(
            look, raised.cause, vouched=raised.vouched, age_s=raised.look_age_s, probe_s=probe_s
        )
        unchanged = (
            guard.c.id == raised.id,
            _RAISED,
            guard.c.look_left >= 0,
            guard.c.look_at == literal(raised.look_at, UtcTime),
        )
        ended = (
            update(guard)
            .where(*unchanged)
            .values(look_at=utc_now(), look_left=-1, look_size=size, probe_at=utc_after(after_s))
        )
        if connection.execute(ended).rowcount:
            connection.execute(delete(guard_look).where(guard_look.c.guard_id == raised.id))
    return ""


def _look(connection: Connection, raised: Guard) -> Look:
    """Count the look's tasks by how they ended.

    A fence that has risen is a failed attempt. A task that succeeded on another route counts as
    cancelled: it says nothing about this route.
    """
    rose = (task.c.fence > guard_look.c.fence).label("rose")
    rows = connection.execute(
        select(task.c.status, rose, task_result.c.route)
        .join(guard_look, guard_look.c.task_id == task.c.id)
        .outerjoin(task_result, task_result.c.task_id == task.c.id)
        .where(guard_look.c.guard_id == raised.id)
    ).all()
    succeeded = [row.route for row in rows if row.status == Status.SUCCEEDED]
    on_route = [route for route in succeeded if raised.route in {route, ANY_ROUTE}]
    unfailed = [row.status for row in rows if not row.rose and row.status != Status.SUCCEEDED]
    return Look(
        succeeded=len(on_route),
        failed=len(rows) - len(succeeded) - len(unfailed) + unfailed.count(Status.DEAD),
        running=unfailed.count(Status.PROCESSING),
        waiting=sum(status in WAITING for status in unfailed),
        cancelled=len(succeeded) - len(on_route) + unfailed.count(Status.CANCELLED),
    )


def any_waiting(connection: Connection, raised: Guard) -> bool:
    """Return whether a task of the guard's batch and type waits."""
    return _any_task(connection, raised, WAITING)


def running(connection: Connection, raised: Guard) -> bool:
    """Return whether a task of the guard's batch and type is being worked on."""
    return _any_task(connection, raised, (Status.PROCESSING,))


def _any_task(connection: Connection, raised: Guard, statuses: Collection[Status]) -> bool:
    # MySQL would read the tasks of several statuses in the order of their rows, and all of them.
    query = along_open(select(task.c.id).where(*of_guard(raised)).limit(1))
    of_statuses = (query.where(task.c.status == int(status)) for status in statuses)
    return any(connection.execute(of_status).scalar() is not None for of_status in of_statuses)


def put_off(connection: Connection, raised: Guard, wait_s: float) -> None:
    """Put a due look off for `wait_s` seconds."""
    connection.execute(
        update(guard)
        .where(guard.c.id == raised.id, guard.c.probe_at <= utc_now())
        .values(probe_at=utc_after(wait_s))
    )


# ---- the tasks that an opened guard had moved


def call_up_moved(connection: Connection, group: str, opened: Guard) -> list[Order]:
    """Make a page of the tasks that an opened guard had moved due now; return their orders.

    When none is left LINGER_S after the opening, the guard's row says so (`called_at`).
    """
    key = guard_key(opened.batch_id, opened.type)
    page = call_up_told(connection, group, WaitingFor(WaitReason.GUARD, key))
    if page.seen:
        return page.orders
    long_open = (guard.c.id == opened.id, guard.c.opened_at < utc_after(-LINGER_S))
    connection.execute(update(guard).where(*long_open).values(called_at=utc_now()))
    return []


def forget(connection: Connection, group: str) -> None:
    """Delete guards that have been open for so long that they affect no decision any more."""
    connection.execute(
        delete(guard).where(guard.c.group_name == group, guard.c.called_at < utc_after(-WINDOW_S))
    )
