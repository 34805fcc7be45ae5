"""The duty that counts the calls of the day, for limits of requests a day.

Otherwise the day's count would start again at 0 after Redis lost its data.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from docllm.agent.ledger.counts.calls_of_day import calls_since
from docllm.agent.ports import Clock
from docllm.agent.quota.grants import DayCount
from docllm.schemas.ledger.transactions import Transactions

EVERY_S = 60.0
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the ledger's times have no zone


async def count_day(
    transactions: Transactions,
    clock: Clock,
    group: str,
    routes_by_account: Callable[[], Mapping[str, Sequence[str]]],
    note: Callable[[str, DayCount], None],
) -> None:
    """Count the calls of each account with such a limit, by the first of its routes."""
    day = int(clock.utc_s() // 86_400)
    midnight = _EPOCH + timedelta(days=day)
    for first, routes in routes_by_account().items():
        calls = await transactions.read(calls_since, group, routes, midnight)
        note(first, DayCount(day=day, calls=calls))
