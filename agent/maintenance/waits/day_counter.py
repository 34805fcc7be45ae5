"""The duty that counts the calls of the day, for limits of requests a day.

Otherwise the day's count would start again at 0 after Redis lost its data.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from docllm.agent.ledger.counts.calls_of_day import calls_since
from docllm.agent.ports import Clock
from docllm.agent.quota.grants import DayCount
from docllm.schemas.ledger.transactions import Transactions

EVERY_S = 60.0
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the ledger's times have no zone


@dataclass(slots=True, kw_only=True, eq=False)
class DayCounter:
    """Counts calls for each account with such a limit.

    `routes` returns the routes of each account by its first route. `note` is given that route.
    """

    transactions: Transactions
    clock: Clock
    group: str
    routes: Callable[[], Mapping[str, Sequence[str]]]
    note: Callable[[str, DayCount], None]

    async def count(self) -> None:
        """Count once."""
        day = int(self.clock.utc_s() // 86_400)
        midnight = _EPOCH + timedelta(days=day)
        for first, routes in self.routes().items():
            calls = await self.transactions.read(calls_since, self.group, routes, midnight)
            self.note(first, DayCount(day=day, calls=calls))
