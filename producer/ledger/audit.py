"""Records in the ledger who ordered what."""

from datetime import datetime, timedelta
from enum import StrEnum

from sqlalchemy import Connection, insert, select

from docllm.schemas.ledger.tables import audit

PURGE = "purge"  # written before the first deletion, so it tells that something may be gone
AGENT = "docllm"  # the actor of what agents decide themselves


class AuditKind(StrEnum):
    """The kind of the object that an order concerns."""

    BATCH = "batch"
    TASK = "task"
    GUARD = "guard"
    REPLAY = "replay"
    ROUTE = "route"
    TOPIC = "topic"
    HOOK = "hook"


def write(
    connection: Connection,
    *,
    group: str,
    actor: str,
    action: str,
    kind: AuditKind,
    target: str,
    detail: str,
    items: int = 0,
) -> None:
    """Record an order in the transaction that carries it out.

    `target` is the name or number of the object. `items`: how many tasks or records the order
    concerns, as far as that is known. Texts that are too long are cut.
    """
    row = {
        "group_name": group,
        "actor": actor[:191],
        "action": action,
        "kind": kind.value,
        "object": target[:191],
        "items": items,
        "detail": detail[:2000],
        "origin": "agent" if actor == AGENT else "cli",
    }
    connection.execute(insert(audit), row)


def targets(connection: Connection, group: str, action: str, *, since: datetime) -> set[str]:
    """Return the objects of the group for which an action was ordered, such as names of batches.

    It reads the orders of the group from `since` on, in UTC without a zone: for a batch, since it
    was made. A database's clock may be set back, so it reads those of a day before too.
    """
    ordered = (
        audit.c.group_name == group,
        audit.c.created_at >= since - timedelta(days=1),
        audit.c.action == action,
    )
    return set(connection.execute(select(audit.c.object).where(*ordered).distinct()).scalars())
