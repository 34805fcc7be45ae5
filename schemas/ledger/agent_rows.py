"""Conditions of agents' rows: which agents are registered, and which were heard of lately."""

from sqlalchemy import ColumnElement, and_, or_

from docllm.schemas.ledger.sql import utc_after
from docllm.schemas.ledger.tables import agent

SILENT_S = 6.0  # after so long without a heartbeat, an agent counts as silent


def registered() -> ColumnElement[bool]:
    """Return the condition that an agent has neither stopped nor been declared lost."""
    return and_(agent.c.stopped_at.is_(None), agent.c.lost_at.is_(None))


def gone(within_s: float | None = None) -> ColumnElement[bool]:
    """Return the condition that an agent stopped or was declared lost, in that time if given."""
    if within_s is None:
        return or_(agent.c.lost_at.is_not(None), agent.c.stopped_at.is_not(None))
    since = utc_after(-within_s)
    return or_(agent.c.lost_at > since, agent.c.stopped_at > since)


def alive(within_s: float = SILENT_S) -> ColumnElement[bool]:
    """Return the condition that an agent is registered and sent a heartbeat in that time."""
    return and_(registered(), agent.c.seen_at > utc_after(-within_s))
