"""Reads from the tally how the tasks of a key ended, to decide whether its guard is raised.

No query here grows with the number of tasks, because the tally is summed up again and again.

How a guard moves from state to state: `docs/architecture.md`, "Guards".

Tested by tests/contract/test_ledger_guard.py.
"""

from collections import Counter
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, func, literal, or_, select

from agent.judge.guard_rule import GOOD_DEAD, GOOD_ENDED, GOOD_LEFT, WINDOW_S, EndedAlike
from producer.text.times import written
from schemas.ledger.sql import UtcTime, utc_after
from schemas.ledger.tables import batch, tally
from schemas.task.failures import Disposition, ErrorClass, TallyOutcome
from schemas.task.guard import ANY_ROUTE
from schemas.task.states import Status

# The batch of tally rows that say that our own prompt was answered; no real batch has this id.
PROBE_BATCH = 0
# The newest tally rows of a key that are read: minutes, or some seconds of a fast batch.
LOOK_BACK = 300
_FINAL = (Status.SUCCEEDED, Status.DEAD, Status.CANCELLED)


def route_works(
    connection: Connection, group: str, route: str, since: datetime | None = None
) -> bool:
    """Return whether a task of the group or our own prompt succeeded on the route lately.

    Only successes after `since`, a time of the database, count if it is given. For ANY_ROUTE our
    own prompts do not count, because they are no evidence about lost agents.
    """
    query = (
        select(tally.c.id)
        .outerjoin(batch, batch.c.id == tally.c.batch_id)
        .where(*_on_route(group, route))
    )
    query = query.where(tally.c.created_at > utc_after(-WINDOW_S))
    if since is not None:
        query = query.where(tally.c.created_at > literal(since, UtcTime))
    return connection.execute(query.limit(1)).scalar() is not None


def silence(connection: Connection, group: str, route: str) -> str:
    """Return since when nothing has succeeded on the route, as text for a person."""
    newest = select(func.max(tally.c.created_at)).outerjoin(batch, batch.c.id == tally.c.batch_id)
    last_at = connection.execute(newest.where(*_on_route(group, route))).scalar()
    since_when = "in this group yet" if last_at is None else f"since {written(last_at)}"
    return f"nothing has succeeded on this route {since_when}"


def _on_route(group: str, route: str) -> tuple[ColumnElement[bool], ...]:
    succeeded = tally.c.state == int(Status.SUCCEEDED)
    if route == ANY_ROUTE:
        return succeeded, batch.c.group_name == group
    return (
        succeeded,
        tally.c.route == route,
        or_(batch.c.group_name == group, tally.c.batch_id == PROBE_BATCH),
    )


def any_success(connection: Connection, batch_id: int, kind: str, route: str) -> bool:
    """Return whether a task of the key has ever succeeded."""
    query = select(tally.c.id).where(
        *_of_key(batch_id, kind, route), tally.c.state == int(Status.SUCCEEDED)
    )
    return connection.execute(query.limit(1)).scalar() is not None


def lately(
    connection: Connection, batch_id: int, kind: str, route: str, *, since: datetime | None
) -> list[EndedAlike]:
    """Return how tasks of the key ended in the window and after `since`, newest first."""
    ended = tally.c.state.in_((int(Status.SUCCEEDED), int(Status.DEAD)))
    query = select(tally.c.disposition, tally.c.fingerprint, tally.c.delta).where(
        *_of_key(batch_id, kind, route), ended
    )
    query = query.where(tally.c.created_at > utc_after(-WINDOW_S), *_after(since))
    rows = connection.execute(
        query.order_by(tally.c.created_at.desc(), tally.c.id.desc()).limit(LOOK_BACK)
    )
    return [
        EndedAlike(row.fingerprint if row.disposition == Disposition.EXHAUSTED else None, row.delta)
        for row in rows
    ]


def refusals(
    connection: Connection, batch_id: int, kind: str, route: str, *, since: datetime | None
) -> tuple[int, Counter[bytes]]:
    """Return how many tasks of the key died after `since`, and the refused ones by fingerprint."""
    columns = (tally.c.outcome, tally.c.disposition, tally.c.fingerprint)
    died = (tally.c.state == int(Status.DEAD), tally.c.delta > 0)
    query = select(*columns, func.sum(tally.c.delta).label("n")).where(
        *_of_key(batch_id, kind, route), *died, *_after(since)
    )
    total, refused = 0, Counter[bytes]()
    for row in connection.execute(query.group_by(*columns)):
        total += int(row.n)
        if (row.outcome, row.disposition) == (ErrorClass.BAD_REQUEST, Disposition.PERMANENT):
            refused[bytes(row.fingerprint)] += int(row.n)
    return total, refused


def good_end(connection: Connection, batch_id: int, kind: str, route: str) -> bool:
    """Return whether the key is at the end of a good run.

    The load has ended, few tasks are left, and few of many tasks have died.
    """
    if connection.execute(select(batch.c.closed_at).where(batch.c.id == batch_id)).scalar() is None:
        return False
    columns = (tally.c.route, tally.c.state, tally.c.outcome)
    query = select(*columns, func.sum(tally.c.delta).label("n")).where(
        tally.c.batch_id == batch_id, tally.c.type == kind
    )
    rows = connection.execute(query.group_by(*columns)).all()
    ends = {
        state: sum(int(row.n) for row in rows if row.state == state and row.route == route)
        for state in _FINAL
    }
    loaded = sum(
        int(row.n)
        for row in rows
        if row.state == Status.PENDING and row.outcome == TallyOutcome.LOADED
    )
    unended = loaded - sum(int(row.n) for row in rows if row.state in _FINAL)
    dead, ended = ends[Status.DEAD], ends[Status.SUCCEEDED] + ends[Status.DEAD]
    return ended >= GOOD_ENDED and dead < GOOD_DEAD * ended and unended <= GOOD_LEFT * ended


def _of_key(batch_id: int, kind: str, route: str) -> tuple[ColumnElement[bool], ...]:
    return tally.c.batch_id == batch_id, tally.c.type == kind, tally.c.route == route


def _after(since: datetime | None) -> tuple[ColumnElement[bool], ...]:
    return () if since is None else (tally.c.created_at > literal(since, UtcTime),)
