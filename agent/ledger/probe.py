"""How a raised guard ends, as SQL: the turns of its probes, its opening, and the calling up of what it had moved.

Every agent does this, each statement by its own condition, so that one of them wins and the others see nothing to do.
"""

from collections.abc import Callable, Collection

from sqlalchemy import ColumnElement, Connection, delete, exists, select, update

from agent.ledger.guard import PROBE_BATCH, route_works
from agent.policy.guard import ROUTE_CLOSED, WINDOW_S, Cause
from agent.ports import Order
from producer import outbox, tally
from producer.guards import ANY_ROUTE, Guard
from schemas.sql import utc_after, utc_now
from schemas.tables import guard, task, task_attempt, task_input
from schemas.task import WAITING, Status

PAGE = 500
FEW = 20  # waiting tasks that are looked at for one of the guard's route
LINGER_S = 10.0  # an agent may move a task for as long after the opening, since it had not heard of it

# What waits since a guard stopped it. Any other wait is an attempt's own delay, or its provider's wish: it is not cut short.
_MOVED = exists().where(
    task_attempt.c.task_id == task.c.id,
    task_attempt.c.fence == task.c.fence - 1,
    task_attempt.c.outcome == "moved",
    task_attempt.c.error_class != ROUTE_CLOSED,
)


def take_turn(connection: Connection, guard_id: int, task_id: int, wait_s: float) -> bool:
    """Let this task be the guard's probe, if one is due; the next one is after `wait_s`. Safe to run twice."""
    due = (guard.c.probe_at <= utc_now()) | (guard.c.probe_task == task_id)
    turn = update(guard).where(guard.c.id == guard_id, guard.c.opened_at.is_(None), due)
    return connection.execute(turn.values(probe_at=utc_after(wait_s), probe_task=task_id)).rowcount == 1


def take_route_turn(connection: Connection, group: str, route: str, wait_s: float) -> bool:
    """Take the turn to ask a route that nothing succeeds on, for all its guards that are due."""
    mine = (guard.c.group_name == group, guard.c.route == route, guard.c.cause == Cause.NO_SUCCESS.value)
    turn = update(guard).where(*mine, guard.c.opened_at.is_(None), guard.c.probe_at <= utc_now())
    return connection.execute(turn.values(probe_at=utc_after(wait_s))).rowcount > 0


def route_answered(connection: Connection, route: str) -> None:
    """Note that a route answered a prompt of our own: it vouches for the route as a task's success does."""
    tally.write(connection, [tally.Change(tally.Key(PROBE_BATCH, "", route, Status.SUCCEEDED, "probe"))])


def passed(connection: Connection, group: str, one: Guard) -> str:
    """Return why the guard may be opened, empty when it may not. After a probe that died of its own input the next is due at once."""
    if one.cause == Cause.NO_SUCCESS:
        return "something succeeded on its route" if route_works(connection, group, one.route, since=one.raised_at) else ""
    status = connection.execute(select(task.c.status).where(task.c.id == one.probe_task)).scalar()
    if status in {Status.DEAD, Status.CANCELLED}:
        ended = update(guard).where(guard.c.id == one.id, guard.c.probe_task == one.probe_task)
        connection.execute(ended.values(probe_at=utc_now(), probe_task=0))
    return "its probe succeeded" if status == Status.SUCCEEDED else ""


def any_waiting(connection: Connection, one: Guard) -> bool:
    """Return whether a task of the guard's batch and type waits."""
    return _any(connection, one, WAITING)


def _any(connection: Connection, one: Guard, statuses: Collection[Status]) -> bool:
    query = select(task.c.id).where(*_mine(one), task.c.status.in_(statuses))
    return connection.execute(query.limit(1)).scalar() is not None


def _mine(one: Guard) -> tuple[ColumnElement[bool], ...]:
    return task.c.batch_id == one.batch_id, task.c.type == one.type


def _candidates(connection: Connection, one: Guard) -> list[int]:
    """Return a few waiting tasks that may be called up: those that were moved, the next one first, else what is due by itself."""
    mine = select(task.c.id).where(*_mine(one)).limit(FEW)
    moved = mine.where(task.c.status == int(Status.RETRYING), _MOVED).order_by(task.c.due_at)
    for query in (moved, mine.where(task.c.status == int(Status.PENDING), task.c.due_at <= utc_now())):
        if found := list(connection.execute(query).scalars()):
            return found
    return []


def running(connection: Connection, one: Guard) -> bool:
    """Return whether a task of the guard's batch and type is being worked on."""
    return _any(connection, one, (Status.PROCESSING,))


def put_off(connection: Connection, one: Guard, wait_s: float) -> None:
    """Let no probe be due before `wait_s`."""
    connection.execute(update(guard).where(guard.c.id == one.id, guard.c.probe_at <= utc_now()).values(probe_at=utc_after(wait_s)))


def call_one(connection: Connection, group: str, one: Guard, wait_s: float, route_of: Callable[[bytes], str]) -> list[Order]:
    """Call up a waiting task of the guard's key as its probe; return the order for its record."""
    for task_id in _candidates(connection, one):
        if one.route in {ANY_ROUTE, route_of(_value(connection, task_id))}:
            return _call(connection, group, task.c.id == task_id) if take_turn(connection, one.id, task_id, wait_s) else []
    return []


def _value(connection: Connection, task_id: int) -> bytes:
    return bytes(connection.execute(select(task_input.c.body).where(task_input.c.task_id == task_id)).scalar_one())


def _call(connection: Connection, group: str, which: ColumnElement[bool]) -> list[Order]:
    """Let waiting tasks be due now, and order records for them."""
    locked = select(task.c.id, task.c.fence).where(which, task.c.status.in_(WAITING)).order_by(task.c.id)
    rows = connection.execute(locked.with_for_update(skip_locked=True)).all()
    if not rows:
        return []
    connection.execute(update(task).where(task.c.id.in_([row.id for row in rows])).values(due_at=utc_now()))
    return outbox.place(connection, group, "tasks", [(outbox.TASK, row.id, row.fence) for row in rows])


def call_up(connection: Connection, group: str, one: Guard) -> list[Order]:
    """Let a page of the tasks that an opened guard had moved run now; when there are no more, say so in its row."""
    mine = (task.c.status == int(Status.RETRYING), *_mine(one), task.c.due_at > utc_now())
    ids = sorted(connection.execute(select(task.c.id).where(*mine, _MOVED).order_by(task.c.due_at).limit(PAGE)).scalars())
    if ids:
        return _call(connection, group, task.c.id.in_(ids) & (task.c.due_at > utc_now()))
    long_open = (guard.c.id == one.id, guard.c.opened_at < utc_after(-LINGER_S))
    connection.execute(update(guard).where(*long_open).values(called_at=utc_now()))
    return []


def forget(connection: Connection, group: str) -> None:
    """Delete guards that have been open for so long that they decide nothing any more."""
    connection.execute(delete(guard).where(guard.c.group_name == group, guard.c.called_at < utc_after(-WINDOW_S)))
