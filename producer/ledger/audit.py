"""Records in the ledger who ordered what."""

from enum import StrEnum

from sqlalchemy import Connection, insert

from docllm.schemas.ledger.tables import audit

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
