"""Reads the types of task that a group's agents have reported lately. Read only."""

from sqlalchemy import Connection, select

from docllm.schemas.agent_report import from_json
from docllm.schemas.ledger.sql import utc_after
from docllm.schemas.ledger.tables import agent

REPORTED_S = 86_400.0  # how long after an agent's last heartbeat its types count as known
_MAX_AGENTS = 1000  # agents, the latest first: restarts leave many rows


def read_types(connection: Connection, group: str) -> frozenset[str]:
    """Return the types that an agent of the group has reported within the last day."""
    query = (
        select(agent.c.report)
        .where(
            agent.c.group_name == group,
            agent.c.seen_at > utc_after(-REPORTED_S),
            agent.c.report.is_not(None),
        )
        .order_by(agent.c.seen_at.desc())
        .limit(_MAX_AGENTS)
    )
    reports = map(from_json, connection.execute(query).scalars())
    return frozenset(name for report in reports if report is not None for name in report.types)
