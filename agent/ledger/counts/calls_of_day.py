"""How many calls a group has made on some routes since midnight (UTC), as SQL.

A call counts on the day on which its attempt ends. So the number is too low for calls whose
attempts have not ended, and for hooks. It is too high for handlers that failed before their first
call.
"""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, func, literal, select

from docllm.schemas.ledger.query_plans import batches_of
from docllm.schemas.ledger.sql import UtcTime
from docllm.schemas.ledger.tables import tally, tally_series
from docllm.schemas.task.failures import UNTRIED, ErrorClass, TallyOutcome

_HOUR_S = 3600
# Attempts that sent nothing to the provider.
_UNSENT = {
    ErrorClass.DOCUMENT_CHANGED,
    ErrorClass.DOCUMENT_REFUSED,
    ErrorClass.DOCUMENT_UNREADABLE,
    ErrorClass.NETWORK,
    ErrorClass.NO_INPUT,
    ErrorClass.NO_PROMPT,
    ErrorClass.REJECTED,
    ErrorClass.UNDECODABLE,
}
# Changes of a task's state without a call.
_CALLS = {TallyOutcome.SUCCEEDED, TallyOutcome.CALL}
_WITHOUT_CALL = sorted(set(TallyOutcome) - _CALLS | UNTRIED | _UNSENT)


def calls_since(
    connection: Connection, group: str, routes: Collection[str], midnight: datetime
) -> int:
    """Return the number of calls; `midnight` is UTC without a zone."""
    series, rows = tally_series.c, tally.c
    rolled_up = select(func.coalesce(func.sum(series.entered), 0)).where(
        series.group_name == group,
        series.width_s == _HOUR_S,
        series.starts_at >= midnight,
        series.route.in_(sorted(routes)),
        series.outcome.not_in(_WITHOUT_CALL),
    )
    of_group = batches_of(group)
    recent = select(func.coalesce(func.sum(rows.delta), 0)).where(
        rows.created_at >= literal(midnight, UtcTime),
        rows.route.in_(sorted(routes)),
        rows.outcome.not_in(_WITHOUT_CALL),
        rows.delta > 0,
        rows.batch_id.in_(of_group),
    )
    # In one statement: compaction moves counts from the tally to the sums.
    both = select(rolled_up.scalar_subquery() + recent.scalar_subquery())
    return int(connection.execute(both).scalar_one())
