"""The duty that looks for routes resumed by a person.

`docllm agent resume ROUTE` writes them into the ledger.
"""

import logging
from dataclasses import dataclass, field
from datetime import datetime

from docllm.agent.inflight.delivery import DeliveryState
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ledger import route_resumes
from docllm.agent.ports import Clock
from docllm.agent.routes import Router
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.text.wording import number_of

log = logging.getLogger(__name__)

CHECK_EVERY_S = 2.0
PAGE = 500  # tasks whose waits one transaction ends


@dataclass(slots=True, kw_only=True, eq=False)
class ResumeListener:
    """Resumes each route that a person resumes after this duty began, and its snoozed tasks.

    Earlier resumes were meant for the agents that ran then.
    """

    transactions: Transactions
    clock: Clock
    group: str
    routes: Router
    table: InFlightTable
    _heard: dict[str, datetime] | None = field(default=None, init=False)

    async def check(self) -> None:
        """Look once, and report newly resumed routes."""
        resumes = await self.transactions.read(route_resumes.resumed, self.group)
        heard, self._heard = self._heard, resumes
        for route, resumed_at in resumes.items():
            if heard is None or heard.get(route) == resumed_at:
                continue
            if self.routes.resume(route, self.clock.now_s()):
                log.info("route %s is resumed by a person", route)
            await self._end_waits(route)

    async def _end_waits(self, route: str) -> None:
        """Let the route's snoozed tasks of this agent start now, however long they would wait."""
        snoozed = self.table.delayed.snoozed_on(route)
        for first in range(0, len(snoozed), PAGE):
            page = snoozed[first : first + PAGE]
            ids = [delivery.task_id for delivery in page]
            await self.transactions.write(route_resumes.end_waits, ids)
            for delivery in page:
                if delivery.state is DeliveryState.DELAYED:
                    self.table.delay(delivery, self.clock.now_s())
        if snoozed:
            log.info("ended the wait of %s of route %s", number_of(len(snoozed), "task"), route)
