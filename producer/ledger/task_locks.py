"""Reads the locks that a running task holds, whether others wait for them or not. Read only."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select

from docllm.schemas.ledger.tables import lock_wait, resource_lock


@dataclass(frozen=True, slots=True)
class TaskLock:
    """A lock that a task holds; `waiting` is how many others wait for it."""

    name: str
    since: datetime
    fence: int
    waiting: int


def of_claim(connection: Connection, group: str, task_id: int, owner: int) -> list[TaskLock]:
    """Return the locks that a task holds under this claim, by name."""
    waiting = (
        select(func.count())
        .where(
            lock_wait.c.group_name == resource_lock.c.group_name,
            lock_wait.c.name == resource_lock.c.name,
            lock_wait.c.owner != 0,
        )
        .scalar_subquery()
    )
    query = select(
        resource_lock.c.name,
        resource_lock.c.changed_at,
        resource_lock.c.fence,
        waiting.label("waiting"),
    ).where(
        resource_lock.c.group_name == group,
        resource_lock.c.owner == owner,
        resource_lock.c.task_id == task_id,
    )  # for the order of the names, a database would read all locks of the group
    return sorted((TaskLock(*row) for row in connection.execute(query)), key=_name)


def _name(lock: TaskLock) -> str:
    return lock.name
