"""The duty that calls up tasks that wait in the ledger, when their time comes or their reason ends.

A guard's tasks are called up by the duty that looks after guards, before their time.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from docllm.agent.ledger.claims import waking
from docllm.agent.ports import Clock, Order
from docllm.agent.routes import Router
from docllm.producer.ledger import joins
from docllm.producer.ledger.waiting_rows import WaitingFor
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.ledger.database import Connection
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.task.waits import WaitReason, wait_text
from docllm.schemas.text.wording import number_of

log = logging.getLogger(__name__)

CHECK_EVERY_S = 1.0
DUE_PAGES = 20  # most pages of tasks whose time has come, in one check
FEW = 20  # tasks of a route in the first step
START_S = 5.0  # by then, this agent has received the other agents' states of routes
# A few tasks go first. If the route does not close within this time, the others follow.
FEW_FIRST_S = 15.0
JOINS_S = 60.0  # between two questions for joins whose siblings have ended


@dataclass(slots=True, kw_only=True, eq=False)
class Waker:
    """Calls up tasks whose time has come, and in walks those whose reason has ended.

    A walk begins at the start, when a route opens, and when settings change. At the start and after
    a change it calls up tasks of every open route, because nothing tells which routes were closed
    before, and tasks that could take no route. Each walk calls up tasks whose type this agent
    knows, and tasks of types whose hours have begun.
    """

    transactions: Transactions
    clock: Clock
    group: str
    routes: Router
    knows_type: Callable[[str], bool]
    own_orders: OwnOrders
    is_awake: Callable[[str], bool] = lambda _: False
    _closed: set[str] = field(default_factory=set, init=False)
    # Closed routes whose fallbacks are closed too.
    _waited_for: set[str] = field(default_factory=set, init=False)
    # Routes to call up tasks of; None: all open routes.
    _opened: set[str] | None = field(default=None, init=False)
    # When the next walk begins; None: no walk is planned.
    _from_s: float | None = field(init=False)
    _only_few: bool = field(default=True, init=False)
    # What is left of the present walk.
    _ended: deque[WaitingFor] = field(default_factory=deque, init=False)
    _joins_from_s: float = field(init=False)  # when it asks for joins again
    _joins_after: str = field(default="", init=False)  # up to where it has asked this time

    def __post_init__(self) -> None:
        self._from_s = self.clock.now_s() + START_S
        self._joins_from_s = self.clock.now_s() + START_S

    def settings_changed(self) -> None:
        """Plan a walk: tasks may wait for routes or types whose settings have just changed."""
        self._begin(None, self.clock.now_s())

    async def check(self) -> None:
        """Call up due tasks, learn which routes opened, and go on with a walk."""
        await self._call_up_due()
        now_s = self.clock.now_s()
        if now_s >= self._joins_from_s:
            await self._ask_for_joins(now_s)
        closed = {route.name for route in self.routes if self.routes.closed(route.name, now_s)}
        waited_for = {name for name in closed if self.routes.waits(name, now_s)}
        # Tasks that may not leave a closed route wait for it, even while its fallback is open.
        if opened := (self._closed - closed) | (self._waited_for - waited_for):
            self._begin(opened, now_s)
        self._closed, self._waited_for = closed, waited_for
        if self._from_s is not None and now_s >= self._from_s:
            self._from_s = None
            self._ended = deque(await self.transactions.read(self._read_ended))
        if self._ended:
            await self._walk(now_s)

    async def _call_up_due(self) -> None:
        # Most checks find nothing, and a question without a lock disturbs nobody.
        if not await self.transactions.read(waking.any_due, self.group):
            return
        for _ in range(DUE_PAGES):
            page = await self.transactions.write(waking.call_up_due, self.group)
            if not page.seen:
                return
            self._send(page.orders, "the time has come")

    async def _ask_for_joins(self, now_s: float) -> None:
        """Call up the joins of the next parents whose siblings have ended unnoticed."""
        group, read = self.group, self.transactions.read
        keys = await read(joins.pages_of_keys, group, self._joins_after)
        if keys and (ended := await read(joins.ended, group, keys)):
            orders = await self.transactions.write(joins.call_up, group, ended)
            self._send(orders, f"waited {wait_text(WaitReason.CHILDREN, '')}")
        self._joins_after = keys[-1] if len(keys) == joins.PAGE else ""
        if not self._joins_after:
            self._joins_from_s = now_s + JOINS_S

    def _begin(self, opened: set[str] | None, now_s: float) -> None:
        """Plan a new walk that begins with a few tasks; keep the routes of an unfinished walk.

        `opened` None means all open routes.
        """
        if opened is not None and (self._ended or self._from_s is not None):
            self._opened = None if self._opened is None else self._opened | opened
        else:
            self._opened = opened
        self._from_s, self._only_few = now_s, True
        self._ended.clear()

    def _read_ended(self, connection: Connection) -> list[WaitingFor]:
        """Return for what tasks wait that this agent knows to have ended."""
        has_ended = {
            WaitReason.ROUTE: self._is_open,
            WaitReason.TYPE: self.knows_type,
            WaitReason.HOURS: self.is_awake,
        }
        return [
            WaitingFor(reason, key)
            for reason, of_key in has_ended.items()
            for key in waking.keys(connection, self.group, reason)
            if of_key(key)
        ]

    def _is_open(self, route: str) -> bool:
        """Return whether to call up tasks that wait for a route, or that may take none.

        Only a walk for all open routes takes the latter, because a change of settings may have
        given them a route.
        """
        return route not in self._waited_for and (self._opened is None or route in self._opened)

    async def _walk(self, now_s: float) -> None:
        """Call up the next page; of a route, at first only a few tasks of each."""
        any_few = False
        while self._ended:
            ended = self._ended[0]
            few = self._only_few and ended.reason is WaitReason.ROUTE
            limit = FEW if few else waking.PAGE
            page = await self.transactions.write(waking.call_up_told, self.group, ended, limit)
            self._send(page.orders, f"waited {wait_text(ended.reason, ended.key)}")
            any_few = any_few or (few and bool(page.orders))
            if few or not page.seen:
                self._ended.popleft()
            elif page.orders:
                break
        if any_few:
            self._only_few, self._from_s = False, now_s + FEW_FIRST_S

    def _send(self, orders: Sequence[Order], why: str) -> None:
        if not orders:
            return
        crash.reach("wait.called_up")
        count = sum(len(order.items) for order in orders)
        log.info("%s called up: %s", number_of(count, "waiting task"), why)
        self.own_orders.send(orders)
