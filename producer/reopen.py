"""Opens a cancelled batch again that has no cancelled task: with those it is opened by their replay, and its dead could wait for ever."""

from sqlalchemy import Connection, update

from producer.selection import Selection
from producer.store import Batch, find_batch
from schemas.tables import audit, batch


def closed(connection: Connection, chosen: Selection) -> Batch | None:
    """Return the batch that is named when all cancelled tasks of it are meant and it is cancelled itself."""
    if not chosen.cancelled or chosen.batch is None or {chosen.key, chosen.type, chosen.tenant} != {None}:
        return None
    found = find_batch(connection, chosen.batch)
    return found if found is not None and found.cancelled else None


def reopen(connection: Connection, which: Batch, actor: str) -> None:
    """Open a batch, and say so in the audit; once, though it be run again."""
    opened = update(batch).where(batch.c.id == which.id, batch.c.cancelled_at.is_not(None)).values(cancelled_at=None)
    if connection.execute(opened).rowcount:
        detail = f"batch {which.name}: it has no cancelled task"
        connection.execute(audit.insert(), {"actor": actor[:191], "action": "reopen", "detail": detail[:2000]})
