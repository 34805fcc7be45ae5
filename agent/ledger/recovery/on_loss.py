"""Stores which types have `on_loss = "dead"`, as SQL: their tasks do not run twice.

A reaper's own settings may lack the types of other agents. So an agent stores its types before it
claims their tasks, and stores them again each hour.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, select

from docllm.producer.ledger import hook_orders
from docllm.producer.ledger.hook_orders import KNOWN_S
from docllm.schemas.ledger.tables import hook_type

_EVENT = "loss"


def store(connection: Connection, group: str, types: Iterable[str]) -> None:
    """Store these types of this agent's settings."""
    hook_orders.store_names(connection, group, [(name, _EVENT) for name in types])


def not_again(connection: Connection, group: str, rows: Sequence[Any]) -> list[Any]:
    """Return the rows, of claims that were taken from their agents, that may not run again.

    What was stored a day before a claim, or later, holds for it, whenever its agent is found lost.
    """
    if not rows:
        return []
    query = select(hook_type.c.type, hook_type.c.seen_at).where(
        hook_type.c.group_name == group,
        hook_type.c.type.in_(sorted({row.type for row in rows})),
        hook_type.c.event == _EVENT,
    )
    known = timedelta(seconds=KNOWN_S)
    held_until = {name: seen_at + known for name, seen_at in connection.execute(query)}
    if not held_until:
        return []
    return [
        row for row in rows if row.type in held_until and row.claimed_at <= held_until[row.type]
    ]
