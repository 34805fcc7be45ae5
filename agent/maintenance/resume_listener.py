"""The duty that looks for routes resumed by a person.

`python -m agent resume ROUTE` writes them into the ledger.
"""

import logging
from collections.abc import Callable
from datetime import datetime

from agent.ledger import route_resumes
from agent.ports import Clock
from schemas.ledger.database import DatabaseError
from schemas.ledger.transactions import Transactions
from schemas.runtime.outage import DUTY, Outage

log = logging.getLogger(__name__)

LOOK_S = 2.0


class ResumeListener:
    """Calls `resumed` with each route that a person resumes after this duty began.

    Earlier resumes were meant for the agents that ran then.
    """

    def __init__(
        self,
        *,
        transactions: Transactions,
        clock: Clock,
        group: str,
        resumed: Callable[[str], object],
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._group = group
        self._resumed = resumed
        self._trouble = Outage(name="looking for resumed routes", clock=clock, words=DUTY)
        self._heard: dict[str, datetime] | None = None

    async def run(self) -> None:
        """Look for resumed routes until cancelled."""
        while True:
            try:
                await self.look()
            except DatabaseError as error:
                self._trouble.failed(getattr(error, "orig", error))
            else:
                self._trouble.answered()
            await self._clock.sleep(LOOK_S)

    async def look(self) -> None:
        """Look once, and report newly resumed routes."""
        said = await self._transactions.read(route_resumes.resumed, self._group)
        news = (
            []
            if self._heard is None
            else [route for route, at in said.items() if self._heard.get(route) != at]
        )
        self._heard = said
        for route in news:
            if self._resumed(route):
                log.info("route %s is resumed: a person said so", route)
