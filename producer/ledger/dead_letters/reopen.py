"""Reopens a cancelled batch that has no cancelled tasks, so its dead tasks can be replayed.

If a batch has cancelled tasks, replaying them reopens it.
"""

from sqlalchemy import Connection, update

from docllm.producer.ledger import audit
from docllm.producer.ledger.audit import AuditKind
from docllm.producer.ledger.dead_letters.selection import Selection
from docllm.producer.ledger.store import Batch, find_batch
from docllm.schemas.ledger.tables import batch


def cancelled_batch(connection: Connection, selection: Selection) -> Batch | None:
    """Return the named batch if it is cancelled and all its cancelled tasks are selected."""
    narrowed = {selection.key, selection.type, selection.tenant} != {None}
    if not selection.cancelled or selection.batch is None or narrowed:
        return None
    target = find_batch(connection, selection.batch)
    if target is None or not target.cancelled or target.archived:
        return None
    return target


def reopen(connection: Connection, target: Batch, actor: str) -> None:
    """Reopen a batch and record it in the audit, once even if it is called again."""
    open_again = (
        update(batch)
        .where(batch.c.id == target.id, batch.c.cancelled_at.is_not(None))
        .values(cancelled_at=None)
    )
    if connection.execute(open_again).rowcount:
        detail = f"batch {target.name}: it has no cancelled task"
        audit.write(
            connection,
            group=target.group,
            actor=actor,
            action="reopen",
            kind=AuditKind.BATCH,
            target=target.name,
            detail=detail,
        )
