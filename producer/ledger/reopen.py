"""Reopens a cancelled batch that has no cancelled tasks, so its dead tasks can be replayed.

If a batch has cancelled tasks, replaying them reopens it.
"""

from sqlalchemy import Connection, update

from producer.ledger.selection import Selection
from producer.ledger.store import Batch, find_batch
from schemas.ledger.tables import audit, batch


def closed(connection: Connection, chosen: Selection) -> Batch | None:
    """Return the named batch if it is cancelled and all its cancelled tasks are selected."""
    if (
        not chosen.cancelled
        or chosen.batch is None
        or {chosen.key, chosen.type, chosen.tenant} != {None}
    ):
        return None
    found = find_batch(connection, chosen.batch)
    return found if found is not None and found.cancelled else None


def reopen(connection: Connection, which: Batch, actor: str) -> None:
    """Reopen a batch and record it in the audit, once even if it is called again."""
    opened = (
        update(batch)
        .where(batch.c.id == which.id, batch.c.cancelled_at.is_not(None))
        .values(cancelled_at=None)
    )
    if connection.execute(opened).rowcount:
        detail = f"batch {which.name}: it has no cancelled task"
        connection.execute(
            audit.insert(), {"actor": actor[:191], "action": "reopen", "detail": detail[:2000]}
        )
