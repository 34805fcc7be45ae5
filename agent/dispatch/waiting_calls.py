"""Tells the quotas which tasks are ready, so that grants for their calls can be asked for."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from docllm.agent.execution.admission import Admission
from docllm.agent.execution.quota_gate import QuotaGate
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.inflight.turns import in_turn
from docllm.agent.quota.grants import MAX_WAITING, LimitKind

# Whether each tenant has a seat, and how many grants of each type no task has counted on yet; None
# for a type without a rate.
_Rooms = tuple[dict[str, bool], dict[str, int | None]]


class WaitingCalls:
    """The waiting calls of one agent, no more than its slots can soon begin."""

    def __init__(self, *, table: InFlightTable, admission: Admission, quotas: QuotaGate) -> None:
        self._table = table
        self._admission = admission
        self._quotas = quotas
        self._reported_routes: set[str] = set()
        self._updates = 0

    def update(self, now_s: float) -> None:
        """Replace the waiting calls of each route by those of the tasks that are ready now.

        Grants are asked for the free slots, and for slots that the route's calls will free soon.
        Tasks of a closed route are asked for on its fallback too. While no slot is free, the next
        task still asks for a place of its tenant, so that it can start when a slot is free.
        """
        self._updates += 1
        free, ended = self._admission.room(), self._quotas.ended_lately()
        came_from = self._diverted()
        ready_routes = self._table.claimable_routes
        asked = (*ready_routes, *self._quotas.waiting_routes, *came_from)
        rooms: _Rooms = {}, {}
        routes = [route for route in asked if self._quotas.configured.may_limit(route)]
        for route in dict.fromkeys((*routes, *self._reported_routes)):
            waiting = self._quotas.waiting(route)
            usable = self._usable(route, free + ended[route], len(ready_routes))
            usable = 0 if self._admission.leaving else min(MAX_WAITING, usable)
            limit = 0 if self._admission.leaving else max(1, usable)
            ready = self._next([route, *came_from[route]], MAX_WAITING if usable else limit)
            soon = self._soon(ready, usable, rooms, now_s)
            later = [delivery for delivery in ready[:limit] if delivery not in soon]
            calls = [self._quotas.first_call(delivery, route) for delivery in soon]
            others = [self._quotas.first_call(delivery, route) for delivery in later]
            self._quotas.quotas.set_waiting(route, [*waiting, *calls], now_s, later=others)
        self._reported_routes = set(routes)

    def _usable(self, route: str, slots: int, routes: int) -> int:
        """Return for how many calls of a route grants are asked.

        A route that has less than its part of the slots asks for one even though no slot is free.
        Otherwise the tasks of other routes would take each slot at once, before a grant has come.
        """
        has_its_part = self._admission.busy_routes().get(route, 0) * routes >= self._admission.slots
        return max(slots, 0 if has_its_part else 1)

    def _soon(
        self, ready: Sequence[Delivery], usable: int, rooms: _Rooms, now_s: float
    ) -> list[Delivery]:
        """Return the tasks that ask for `usable` grants of their account.

        A task whose tenant or type has no seat asks after the others. Otherwise it would take the
        only grant that is asked for. A task without a grant of its type asks for that alone: its
        account's grant would be too old when it comes.
        """
        seats, grants = rooms
        soon, seatless = list[Delivery](), list[Delivery]()
        for delivery in ready:
            if len(soon) == usable:
                return soon
            task_type, tenant = delivery.task_type, delivery.tenant
            if task_type not in grants:
                grants[task_type] = self._grants(task_type, now_s)
            if tenant not in seats:
                seats[tenant] = self._quotas.has_room((LimitKind.TENANT, tenant), now_s)
            granted = grants[task_type]
            if granted == 0:
                continue
            if granted is not None:
                grants[task_type] = granted - 1
            has_seat = seats[tenant] and not self._admission.is_type_full(delivery)
            (soon if has_seat else seatless).append(delivery)
        return (soon + seatless)[:usable]

    def _grants(self, task_type: str, now_s: float) -> int | None:
        """Return how many attempts at a type's tasks its rate lets begin; None without a rate."""
        of_type = LimitKind.TYPE, task_type
        limit = self._quotas.configured.find(of_type)
        if limit is None or limit[1].rpm is None:
            return None
        return max(0, self._quotas.quotas.room(of_type, now_s) or 0)

    def _diverted(self) -> defaultdict[str, list[str]]:
        """Return the closed routes whose tasks use fallbacks, by fallback.

        Calls are asked for on each of them, because a task may be bound to any of them.
        """
        came_from: defaultdict[str, list[str]] = defaultdict(list)
        for route in self._table.claimable_routes:
            for target in self._admission.fallbacks(route):
                came_from[target].append(route)
        return came_from

    def _next(self, routes: Sequence[str], most: int) -> list[Delivery]:
        """Return the next deliveries of these routes, at most so many.

        The routes take turns, and another one is the first in each update. So none of them waits
        with calls that the others' grants are too small for.
        """
        first = self._updates % len(routes)
        in_order = (*routes[first:], *routes[:first])
        return list(
            islice(in_turn(*(self._table.next_for(route, most) for route in in_order)), most)
        )
