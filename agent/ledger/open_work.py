"""Asks whether a group, or a batch, still has work."""

from typing import Any

from sqlalchemy import Connection, Select, func, select

from docllm.schemas.ledger.query_plans import along_open
from docllm.schemas.ledger.sql import NEVER_TIME
from docllm.schemas.ledger.tables import batch, task
from docllm.schemas.task.states import OPEN, Status


def any_open_task(connection: Connection, group: str) -> bool:
    """Return whether a task of the group is open, and no join that waits for others.

    The query probes each batch, newest first, once for each status. The subquery's limit keeps
    servers from turning it into a join; and with several statuses in one condition they would read
    the whole batch.
    """
    first_open = func.coalesce(*(_first(status).scalar_subquery() for status in OPEN))
    query = select(batch.c.id).where(batch.c.group_name == group, first_open.is_not(None))
    newest_first = query.order_by(batch.c.id.desc()).limit(1)
    return connection.execute(newest_first).scalar() is not None


def _first(status: Status) -> Select[Any]:
    """Return a query for a task of the outer query's batch with this status."""
    in_batch = (task.c.batch_id == batch.c.id, task.c.status == int(status))
    is_due = task.c.due_at < NEVER_TIME
    return along_open(select(task.c.id).where(*in_batch, is_due)).limit(1)


def open_in(connection: Connection, batch_id: int) -> bool:
    """Return whether a task of the batch is not final."""
    query = along_open(
        select(task.c.id).where(task.c.batch_id == batch_id, task.c.status.in_(OPEN))
    )
    return connection.execute(query.limit(1)).scalar() is not None


def any_batch(connection: Connection, group: str) -> bool:
    """Return whether the group has ever had work."""
    query = select(batch.c.id).where(batch.c.group_name == group).limit(1)
    return connection.execute(query).scalar() is not None
