"""The duty that calls up tasks that wait in a tier for a route or for their type."""

import logging
from collections.abc import Callable

from docllm.agent.ledger.claims import call_up
from docllm.agent.ledger.claims.call_up import CallUpCursor
from docllm.agent.ports import Clock
from docllm.agent.routes import Router
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.text.wording import number_of

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0
FEW = 20  # tasks of a route in the first step
STEPS = 4  # most steps in one check as long as they find nothing
START_S = 5.0  # by then, this agent has received the other agents' states of routes
# A few tasks go first. If the route does not close within this time, the others follow.
FEW_FIRST_S = 15.0


class CallUpWalk:
    """Walks through the waiting tasks: at the start, when a route opens, when settings change.

    At the start it calls up tasks of every open route, because nothing tells which routes were
    closed before, tasks that could take no route of other agents, and tasks whose type other agents
    did not know, if this one does. It does the same when routes or types change.
    """

    def __init__(
        self,
        *,
        transactions: Transactions,
        clock: Clock,
        group: str,
        routes: Router,
        knows_type: Callable[[str], bool],
        is_awake: Callable[[str], bool] = lambda _: False,
        own_orders: OwnOrders,
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._group = group
        self._routes = routes
        self._knows_type = knows_type
        self._is_awake = is_awake
        self._own_orders = own_orders
        self._closed: set[str] = set()
        self._waited_for: set[str] = set()  # closed routes whose fallbacks are closed too
        self._opened: set[str] | None = None  # routes to call up tasks of; None: all open routes
        # When the next walk begins; None: no walk is planned.
        self._from_s: float | None = clock.now_s() + START_S
        self._only_few = True
        self._walking = False
        self._cursor: CallUpCursor | None = None

    def settings_changed(self) -> None:
        """Plan a walk: tasks may wait for routes or types whose settings have just changed."""
        self._begin(None, self._clock.now_s())

    async def check(self) -> None:
        """Learn which routes opened, and take the next steps of a walk that is due."""
        now_s = self._clock.now_s()
        closed = {route.name for route in self._routes if self._routes.closed(route.name, now_s)}
        waited_for = {name for name in closed if self._routes.waits(name, now_s)}
        # Tasks that may not leave a closed route wait for it, even while its fallback is open.
        if opened := (self._closed - closed) | (self._waited_for - waited_for):
            self._begin(opened, now_s)
        self._closed, self._waited_for = closed, waited_for
        if self._from_s is not None and now_s >= self._from_s:
            self._from_s, self._walking, self._cursor = None, True, None
        if self._walking:
            await self._walk(now_s)

    def _begin(self, opened: set[str] | None, now_s: float) -> None:
        """Plan a new walk that begins with a few tasks; keep the routes of an unfinished walk.

        `opened` None means all open routes.
        """
        if opened is not None and (self._walking or self._from_s is not None):
            self._opened = None if self._opened is None else self._opened | opened
        else:
            self._opened = opened
        self._from_s, self._only_few, self._walking = now_s, True, False

    def _wanted(self, route: str) -> bool:
        """Return whether to call up tasks that wait for a route, or that no route was allowed.

        For the latter, `route` is the rule that refused them. Only a walk for all open routes takes
        them, because a change of settings may have given them a route.
        """
        return route not in self._waited_for and (self._opened is None or route in self._opened)

    async def _walk(self, now_s: float) -> None:
        for _ in range(STEPS):
            limit = FEW if self._only_few else call_up.MANY
            page = await self._transactions.write(
                call_up.step,
                self._group,
                self._wanted,
                limit,
                self._cursor,
                self._knows_type,
                self._is_awake,
            )
            self._cursor = page.cursor
            if page.orders:
                count = sum(len(order.items) for order in page.orders)
                log.info(
                    "%s called up: the route is open, or this agent may know the route or the type",
                    number_of(count, "waiting task"),
                )
                self._own_orders.send(page.orders)
            if page.for_routes and self._only_few:
                self._only_few, self._walking, self._from_s = False, False, now_s + FEW_FIRST_S
                return
            self._walking = page.cursor is not None
            if page.orders or not self._walking:
                return
