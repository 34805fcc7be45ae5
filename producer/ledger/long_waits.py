"""Tasks that a refused call lets wait for long, and the order that their routes be called now.

The order is one row for each route of a group, and every agent reads it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, Subquery, func, select, update

from docllm.producer.ledger import audit
from docllm.producer.ledger.audit import AuditKind
from docllm.schemas.ledger.query_plans import NOT_ARCHIVED, batches_of, first_due
from docllm.schemas.ledger.sql import NEVER_TIME, insert_new, seconds_until, utc_after, utc_now
from docllm.schemas.ledger.tables import batch, route_resume, task
from docllm.schemas.task.states import Status

LONG_WAIT_S = 60.0
MAX_READ = 20_000  # waiting tasks, over all groups
PAGE = 500  # tasks in one statement


@dataclass(frozen=True, slots=True)
class LongWait:
    """How many tasks wait for one route, and when and in how many seconds the first is due."""

    route: str
    tasks: int
    due_s: float
    due_at: datetime


@dataclass(frozen=True, slots=True)
class WaitingTasks:
    """Filters for waiting tasks; those that are not set let every task of the group pass."""

    group: str
    batch: str | None = None
    type: str | None = None
    tenant: str | None = None
    key: str | None = None


def read(connection: Connection, of: WaitingTasks) -> list[LongWait]:
    """Return the waits of over a minute after a refused call, by route, the first due first."""
    first, batches = _waiting(), batches_of(of.group, NOT_ARCHIVED)
    if of.batch is not None:
        batches = batches.where(batch.c.name == of.batch)
    filters = (
        (first.c.type, of.type),
        (first.c.tenant, of.tenant),
        (first.c.task_key, None if of.key is None else of.key.encode()),
    )
    rows = connection.execute(
        select(
            first.c.route,
            func.count(),
            func.min(seconds_until(first.c.due_at)),
            func.min(first.c.due_at),
        )
        .where(
            first.c.batch_id.in_(batches),
            first.c.route != "",
            *(column == value for column, value in filters if value is not None),
        )
        .group_by(first.c.route)
    )
    waits = [LongWait(route, count, max(0.0, float(s)), at) for route, count, s, at in rows]
    return sorted(waits, key=lambda wait: wait.due_s)


def put_off(group: str) -> Select[Any]:
    """Return the batch and the time of tasks that a refused call lets wait for over a minute."""
    first = _waiting()
    of_group = (first.c.batch_id.in_(batches_of(group, NOT_ARCHIVED)), first.c.route != "")
    return select(first.c.batch_id, first.c.due_at).where(*of_group)


def _waiting() -> Subquery:
    after, never = task.c.due_at > utc_after(LONG_WAIT_S), task.c.due_at < NEVER_TIME  # of joins
    return first_due(Status.PENDING, MAX_READ, after, never)


def resume(connection: Connection, group: str, route: str, actor: str) -> None:
    """Record that a route may take calls from now on, by the database's clock, and who said so.

    Its long waits end in the ledger too, for agents that start later.
    """
    first, batches = _waiting(), batches_of(group, NOT_ARCHIVED)
    waits = select(first.c.id).where(first.c.batch_id.in_(batches), first.c.route == route)
    ids = sorted(connection.execute(waits).scalars())
    for begin in range(0, len(ids), PAGE):
        due_now = update(task).where(
            task.c.id.in_(ids[begin : begin + PAGE]),
            task.c.status == int(Status.PENDING),
            task.c.due_at > utc_now(),
        )
        connection.execute(due_now.values(due_at=utc_now()))
    row_key = (route_resume.c.group_name == group, route_resume.c.route == route)
    resumed_again = update(route_resume).where(*row_key).values(resumed_at=utc_now())
    if connection.execute(resumed_again).rowcount == 0:
        row = {"group_name": group, "route": route}
        connection.execute(insert_new(connection, route_resume), row)
    audit.write(
        connection,
        group=group,
        actor=actor,
        action="resume",
        kind=AuditKind.ROUTE,
        target=route,
        detail=f"route {route} of group {group}",
    )
