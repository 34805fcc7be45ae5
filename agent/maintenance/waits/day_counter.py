"""The duty that counts the calls of the day, for limits of requests a day.

Otherwise the day's count would start again at 0 after Redis lost its data.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from docllm.agent.ledger.counts.calls_of_day import calls_since
from docllm.agent.maintenance.duty import Duty, repeat
from docllm.agent.ports import Clock
from docllm.agent.quota.grants import DayCount
from docllm.schemas.ledger.transactions import Transactions

EVERY_S = 60.0
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the ledger's times have no zone


class DayCounter:
    """Counts calls for each account with such a limit.

    `routes` returns the routes of each account by its first route. `note` is given that route.
    """

    def __init__(
        self,
        *,
        transactions: Transactions,
        clock: Clock,
        group: str,
        routes: Callable[[], Mapping[str, Sequence[str]]],
        note: Callable[[str, DayCount], None],
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._group = group
        self._routes = routes
        self._note = note
        self._duty = Duty(name="counting the calls of the day", work=self.count, clock=clock)

    async def run(self) -> None:
        """Count until cancelled."""
        await repeat([self._duty], partial(self._clock.sleep, EVERY_S))

    async def count(self) -> None:
        """Count once."""
        day = int(self._clock.utc_s() // 86_400)
        midnight = _EPOCH + timedelta(days=day)
        for first, routes in self._routes().items():
            calls = await self._transactions.read(calls_since, self._group, routes, midnight)
            self._note(first, DayCount(day=day, calls=calls))
