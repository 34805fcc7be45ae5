"""Reads the locks that a running task holds, whether others wait for them or not. Read only."""

from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, func, select

from docllm.schemas.ledger.tables import lock_wait, resource_lock


def of_claim(connection: Connection, group: str, task_id: int, owner: int) -> list[dict[Any, Any]]:
    """Return the locks that a task holds under this claim, by name.

    A lock has its `name`, `since`, `fence`, and as `waiting` how many others wait for the lock.
    """
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
        resource_lock.c.changed_at.label("since"),
        resource_lock.c.fence,
        waiting.label("waiting"),
    ).where(
        resource_lock.c.group_name == group,
        resource_lock.c.owner == owner,
        resource_lock.c.task_id == task_id,
    )  # for the order of the names, a database would read all locks of the group
    return sorted(map(dict, connection.execute(query).mappings()), key=itemgetter("name"))
