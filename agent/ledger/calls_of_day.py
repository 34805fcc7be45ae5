"""How many calls a group has made on some routes since midnight (UTC), as SQL.

Reads the hourly sums, which lag by some minutes. So the number may be slightly too low, but never
too high.

Tested by tests/contract/test_ledger_calls_of_day.py.
"""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import Connection, func, select

from schemas.ledger.tables import tally_series
from schemas.task.failures import UNTRIED, TallyOutcome

_HOUR_S = 3600
# Changes of a task's state without a call.
_WITHOUT_CALL = sorted(set(TallyOutcome) - {TallyOutcome.SUCCEEDED} | set(UNTRIED))


def calls_since(
    connection: Connection, group: str, routes: Collection[str], midnight: datetime
) -> int:
    """Return the number of calls; `midnight` is UTC without a zone."""
    series = tally_series.c
    query = select(func.coalesce(func.sum(series.entered), 0)).where(
        series.group_name == group,
        series.width_s == _HOUR_S,
        series.starts_at >= midnight,
        series.route.in_(sorted(routes)),
        series.outcome.not_in(_WITHOUT_CALL),
    )
    return int(connection.execute(query).scalar_one())
