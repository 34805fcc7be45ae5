"""Tells the quotas which tasks are ready, so that grants for their calls can be asked for."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from docllm.agent.execution.admission import Admission
from docllm.agent.execution.quota_gate import QuotaGate
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.inflight.turns import in_turn
from docllm.agent.quota.grants import MAX_WAITING, LimitKind, LimitName

# What is in the way of a task: its tenant or its type has no seat, or its type has no grant.
_NO_SEAT, _NO_GRANT = 1, 2


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
        grants: dict[LimitName, int] = {}
        routes = [route for route in asked if self._quotas.configured.may_limit(route)]
        for route in dict.fromkeys((*routes, *self._reported_routes)):
            waiting = self._quotas.waiting(route)
            usable = self._usable(route, free + ended[route], len(ready_routes))
            usable = 0 if self._admission.leaving else min(MAX_WAITING, usable)
            limit = 0 if self._admission.leaving else max(1, usable)
            ready = self._next([route, *came_from[route]], MAX_WAITING)
            held_up = {delivery: self._held_up(delivery, grants, now_s) for delivery in ready}
            may_begin = [delivery for delivery in ready if held_up[delivery] < _NO_GRANT]
            soon = sorted(may_begin, key=held_up.__getitem__)[:usable]
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

    def _held_up(self, delivery: Delivery, grants: dict[LimitName, int], now_s: float) -> int:
        """Return how much is in the way of a task that has a grant of its account: 0 is nothing.

        Other tasks ask before it. Otherwise it would take the only grant that is asked for. A task
        without a grant of its type asks for that alone: its account's grant would be too old when
        it comes. `grants` are those of types that no other task has counted on.
        """
        of_type = LimitKind.TYPE, delivery.task_type
        limit = self._quotas.configured.find(of_type)
        if limit is not None and limit[1].rpm is not None:
            room = grants.setdefault(of_type, self._quotas.quotas.room(of_type, now_s) or 0)
            if room <= 0:
                return _NO_GRANT
            grants[of_type] = room - 1
        has_seat = self._quotas.has_room((LimitKind.TENANT, delivery.tenant), now_s)
        return _NO_SEAT if not has_seat or self._admission.is_type_full(delivery) else 0

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
