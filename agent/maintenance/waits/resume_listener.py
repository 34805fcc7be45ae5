"""The duty that looks for routes resumed by a person.

`python -m agent resume ROUTE` writes them into the ledger.

Tested by tests/contract/guards/test_resume.py.
"""

import logging
from datetime import datetime
from functools import partial

from agent.ledger import route_resumes
from agent.maintenance.duty import Duty, repeat
from agent.ports import Clock
from agent.routes import Router
from schemas.ledger.transactions import Transactions

log = logging.getLogger(__name__)

CHECK_EVERY_S = 2.0


class ResumeListener:
    """Resumes each route that a person resumes after this duty began.

    Earlier resumes were meant for the agents that ran then.
    """

    def __init__(
        self,
        *,
        transactions: Transactions,
        clock: Clock,
        group: str,
        routes: Router,
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._group = group
        self._routes = routes
        self._duty = Duty(name="looking for resumed routes", work=self.check, clock=clock)
        self._heard: dict[str, datetime] | None = None

    async def run(self) -> None:
        """Look for resumed routes until cancelled."""
        await repeat([self._duty], partial(self._clock.sleep, CHECK_EVERY_S))

    async def check(self) -> None:
        """Look once, and report newly resumed routes."""
        resumes = await self._transactions.read(route_resumes.resumed, self._group)
        heard, self._heard = self._heard, resumes
        for route, resumed_at in resumes.items():
            if heard is None or heard.get(route) == resumed_at:
                continue
            if self._routes.resume(route, self._clock.now_s()):
                log.info("route %s is resumed by a person", route)
