"""Small facts that an agent asks the database for: what a reply may weigh, and whether a group still has work."""

from sqlalchemy import Connection, select, text

from schemas.tables import batch, task
from schemas.task import OPEN

MAX_REPLY_BYTES = 16 << 20


def reply_limit_bytes(connection: Connection) -> int:
    """Return how large a stored reply may be: bodies travel as hexadecimal digits, and a group holds more than one."""
    if connection.dialect.name == "sqlite":
        return MAX_REPLY_BYTES
    packet = int(connection.execute(text("SELECT @@max_allowed_packet")).scalar_one())
    return min(MAX_REPLY_BYTES, packet // 4)


def open_tasks(connection: Connection, group: str) -> bool:
    """Return whether a task of the group is not final."""
    query = select(task.c.id).join(batch, batch.c.id == task.c.batch_id).where(task.c.status.in_(OPEN), batch.c.group_name == group)
    return connection.execute(query.limit(1)).scalar() is not None


def open_in(connection: Connection, batch_id: int) -> bool:
    """Return whether a task of the batch is not final."""
    query = select(task.c.id).where(task.c.status.in_(OPEN), task.c.batch_id == batch_id)
    return connection.execute(query.limit(1)).scalar() is not None


def any_batch(connection: Connection, group: str) -> bool:
    """Return whether the group has ever had work."""
    return connection.execute(select(batch.c.id).where(batch.c.group_name == group).limit(1)).scalar() is not None
