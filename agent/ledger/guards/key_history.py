"""Reads from the counts how the tasks of a key ended, to decide whether its guard is raised.

No query here grows with the number of tasks, because compaction sums up old counts. What happened
in the last WINDOW_S is read from the tally alone: its rows are rolled up when they are older.

How a guard moves from state to state: `docs/explanation/architecture.md`, "Guards".
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, literal, or_, select, true

from docllm.agent.judge.guard_rule import GOOD_DEAD, GOOD_ENDED, GOOD_LEFT, WINDOW_S, EndCount
from docllm.producer.ledger.tally import OTHER_FINGERPRINTS, Columns, any_count, counts, failures
from docllm.producer.text.times import written
from docllm.schemas.ledger.sql import UtcTime, utc_after
from docllm.schemas.ledger.tables import batch, tally
from docllm.schemas.task.failures import FOLLOW_UP, Disposition, ErrorClass, TallyOutcome
from docllm.schemas.task.guard import ANY_ROUTE
from docllm.schemas.task.states import FINAL, Status

# The batch id of tally rows that record an answer to our own prompt; no real batch has this id.
PROBE_BATCH = 0
# The newest tally rows of a key that are read: minutes, or some seconds of a fast batch.
LOOK_BACK = 300
_TALLY: Columns = dict(tally.c.items())


def route_works(
    connection: Connection, group: str, route: str, since: datetime | None = None
) -> bool:
    """Return whether a task of the group or our own prompt succeeded on the route lately.

    Only successes after `since`, a time of the database, count if it is given. For ANY_ROUTE our
    own prompts do not count, because they say nothing about lost agents.
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
    of_group = select(batch.c.id).where(batch.c.group_name == group)

    def on_route(column: Columns) -> Iterator[ColumnElement[bool]]:
        yield column["state"] == int(Status.SUCCEEDED)
        if route == ANY_ROUTE:
            yield column["batch_id"].in_(of_group)
        else:
            yield column["route"] == route
            yield or_(column["batch_id"] == PROBE_BATCH, column["batch_id"].in_(of_group))

    newest = select(func.max(counts(on_route).c.newest_at))
    last_at = connection.execute(newest).scalar()
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


def any_success(connection: Connection, batch_id: int, task_type: str, route: str) -> bool:
    """Return whether a task of the key has ever succeeded."""
    succeeded = any_count(
        lambda column: [
            *_of_key(column, batch_id, task_type, route),
            column["state"] == int(Status.SUCCEEDED),
        ]
    )
    return bool(connection.execute(select(succeeded)).scalar())


def recent_ends(
    connection: Connection, batch_id: int, task_type: str, route: str, *, since: datetime | None
) -> list[EndCount]:
    """Return how tasks of the key ended in the window and after `since`, newest first."""
    ended = tally.c.state.in_((int(Status.SUCCEEDED), int(Status.DEAD)))
    query = select(tally.c.disposition, tally.c.fingerprint, tally.c.delta).where(
        *_of_key(_TALLY, batch_id, task_type, route), ended
    )
    query = query.where(
        tally.c.delta > 0,  # replays (negative counts) do not undo deaths here
        tally.c.disposition != Disposition.WORKER_LOST,  # the route had no part in such a death
        tally.c.created_at > utc_after(-WINDOW_S),
        *_after(tally.c.created_at, since),
    )
    rows = connection.execute(
        query.order_by(tally.c.created_at.desc(), tally.c.id.desc()).limit(LOOK_BACK)
    )
    return [
        EndCount(row.fingerprint if row.disposition == Disposition.EXHAUSTED else None, row.delta)
        for row in rows
    ]


def refusals(
    connection: Connection, batch_id: int, task_type: str, route: str, *, since: datetime | None
) -> tuple[int, Counter[bytes]]:
    """Return how many tasks of the key died after `since`, and the refused ones by fingerprint.

    The deaths of a rolled-up group of failures have no times of their own. If such a group began
    before `since` and goes on, all its deaths are in the first number and none in the second.
    Deaths of tasks whose agents were lost are left out.
    """
    of_key = failures(
        lambda column: [
            *_of_key(column, batch_id, task_type, route),
            *_after(column["last_at"], since),
            column["disposition"] != Disposition.WORKER_LOST,
        ]
    )
    columns = (of_key.c.error_class, of_key.c.disposition, of_key.c.fingerprint)
    certain = case((and_(true(), *_after(of_key.c.first_at, since)), of_key.c.entered), else_=0)
    sums = (func.sum(of_key.c.entered).label("most"), func.sum(certain).label("n"))
    total, refused = 0, Counter[bytes]()
    for row in connection.execute(select(*columns, *sums).group_by(*columns)):
        total += int(row.most)
        is_refusal = (row.error_class, row.disposition) == (
            ErrorClass.BAD_REQUEST,
            Disposition.PERMANENT,
        )
        if is_refusal and row.fingerprint != OTHER_FINGERPRINTS:
            refused[bytes(row.fingerprint)] += int(row.n)
    return total, refused


def ends_well(connection: Connection, batch_id: int, task_type: str, route: str) -> bool:
    """Return whether the key ends well: its load ended, few tasks are open, few of many died.

    If tasks of the type are follow-ups, any open task of the batch may order more of them, and
    counts as left.
    """
    if connection.execute(select(batch.c.closed_at).where(batch.c.id == batch_id)).scalar() is None:
        return False
    counted = counts(lambda column: [column["batch_id"] == batch_id]).c
    columns = [counted[name] for name in ("type", "route", "state", "outcome", "disposition")]
    sums = (func.sum(counted.delta).label("n"), func.sum(counted.entered).label("entered"))
    rows = connection.execute(select(*columns, *sums).group_by(*columns)).all()
    of_type = [row for row in rows if row.type == task_type]
    ends = {
        state: sum(int(row.entered) for row in of_type if row.state == state and row.route == route)
        for state in FINAL
    }
    grows = any(row.disposition == FOLLOW_UP for row in of_type)
    unended = _unended(rows if grows else of_type)
    dead, ended = ends[Status.DEAD], ends[Status.SUCCEEDED] + ends[Status.DEAD]
    return ended >= GOOD_ENDED and dead < GOOD_DEAD * ended and unended <= GOOD_LEFT * ended


def _unended(rows: Sequence[Any]) -> int:
    loaded = sum(
        int(row.n)
        for row in rows
        if row.state == Status.PENDING and row.outcome == TallyOutcome.LOADED
    )
    return loaded - sum(int(row.n) for row in rows if row.state in FINAL)


def _of_key(
    column: Columns, batch_id: int, task_type: str, route: str
) -> tuple[ColumnElement[bool], ...]:
    return column["batch_id"] == batch_id, column["type"] == task_type, column["route"] == route


def _after(moment: ColumnElement[Any], since: datetime | None) -> tuple[ColumnElement[bool], ...]:
    return () if since is None else (moment > literal(since, UtcTime),)
