"""The ready queue: deliveries that may be claimed, by lane, route and tenant. Pure.

Turns are taken at four levels: lanes, routes in a lane, tenants on a route, and returned or new
deliveries of a tenant. So none of them starves. The deliveries of a shelved route keep their places
but not their bodies, so that the agent can read on to records of other routes.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.turns import LaneTurns, MayTake, TenantTurns, always
from docllm.schemas.task.record.lanes import Lane

RoomByRoute = dict[str, int]


class _LaneQueue:
    """The ready deliveries of one lane, by route."""

    def __init__(self, weight_of: Callable[[str], float]) -> None:
        self._weight_of = weight_of
        # Ordered by turns: the route whose turn was last is at the end.
        self.routes: dict[str, TenantTurns] = {}

    def put(self, delivery: Delivery, *, was_waiting: bool) -> None:
        if delivery.route not in self.routes:
            self.routes[delivery.route] = TenantTurns(self._weight_of)
        self.routes[delivery.route].put(delivery, was_waiting=was_waiting)

    def pop_of(self, route: str, room: RoomByRoute, may: MayTake) -> Delivery | None:
        """Take the next delivery of a route that has room, and take it from the room."""
        delivery = self.routes[route].pop(may)
        if delivery is not None:
            if len(self.routes) > 1:
                self.routes[route] = self.routes.pop(route)
            room[route] -= 1
        return delivery

    def take_of(self, route: str, limit: int, may: MayTake) -> list[Delivery]:
        """Take deliveries of a route that takes turns with no other."""
        queue = self.routes[route]
        if len(self.routes) > 1:
            self.routes[route] = self.routes.pop(route)
        return queue.take(limit, may)

    def next_route(self, room: RoomByRoute) -> str | None:
        """Return the route whose turn it is, of those that have room and deliveries."""
        for route, queue in self.routes.items():
            if queue.size and room.get(route, 0) > 0:
                return route
        return None

    def restore(self) -> None:
        for queue in self.routes.values():
            queue.restore()

    def drop_unready(self) -> None:
        for queue in self.routes.values():
            queue.drop_unready()
        # Routes come from tasks, so unused names must not pile up.
        self.routes = {route: queue for route, queue in self.routes.items() if queue.size}


class ReadyQueue:
    """The ready queues, by lane and route. `weight_of` gives a tenant's part beside others."""

    def __init__(self, *, weight_of: Callable[[str], float] = lambda _tenant: 1.0) -> None:
        self._lanes = {lane: _LaneQueue(weight_of) for lane in Lane}
        self._turns = LaneTurns()
        self._shelved: set[str] = set()

    def __len__(self) -> int:
        return sum(queue.size for lane in self._lanes.values() for queue in lane.routes.values())

    @property
    def unshelved(self) -> int:
        """How many deliveries wait for routes that are not shelved."""
        return sum(map(self.unshelved_in, Lane))

    def unshelved_in(self, lane: Lane) -> int:
        """Return how many deliveries of a lane wait for routes that are not shelved."""
        return sum(
            queue.size
            for route, queue in self._lanes[lane].routes.items()
            if route not in self._shelved
        )

    @property
    def routes(self) -> list[str]:
        """The routes that deliveries wait for."""
        return list(dict.fromkeys(route for lane in self._lanes.values() for route in lane.routes))

    @property
    def routes_in_turn(self) -> list[str]:
        """The routes that deliveries wait for, in the order of their next turns."""
        by_lane = {lane: iter(queue.routes) for lane, queue in self._lanes.items()}
        return list(dict.fromkeys(self._turns.merge(by_lane)))

    def count(self, route: str) -> int:
        """Return how many deliveries wait for a route."""
        return sum(queue.size for queue in self._of(route))

    def is_shelved(self, route: str) -> bool:
        """Return whether a route's deliveries wait without their bodies."""
        return route in self._shelved

    def put(self, delivery: Delivery, *, was_waiting: bool) -> None:
        """Queue a delivery for its route."""
        self._lanes[delivery.lane].put(delivery, was_waiting=was_waiting)

    def shelve(self, route: str) -> Iterator[Delivery]:
        """Shelve a route; return its ready deliveries, whose bodies the caller must drop."""
        self._shelved.add(route)
        return (
            delivery
            for queue in self._of(route)
            for delivery in queue
            if delivery.state is DeliveryState.READY
        )

    def unshelve(self, route: str) -> None:
        """Unshelve a route; its deliveries count again toward back-pressure."""
        self._shelved.discard(route)

    def next_of(self, route: str, limit: int) -> list[Delivery]:
        """Return the next deliveries of a route, about in the order in which they are taken."""
        queues = {
            lane: queue.routes[route].next(limit)
            for lane, queue in self._lanes.items()
            if route in queue.routes
        }
        if len(queues) == 1:  # there are no turns to take
            (shown,) = queues.values()
            return list(islice(shown, limit))
        return list(islice(self._turns.merge(queues), limit))

    def take(self, limit: int, room: Callable[[str], int], may: MayTake = always) -> list[Delivery]:
        """Take up to `limit` deliveries, by turns.

        Of each route, at most as many as `room` returns are taken; of each tenant on it, as many as
        `may` allows. A delivery that is not taken keeps its place among its tenant's deliveries.
        """
        deliveries: list[Delivery] = []
        free = {route: room(route) for route in self.routes} if limit > 0 else {}
        usable = [
            (queue, route)
            for queue in self._lanes.values()
            for route, waiting in queue.routes.items()
            if waiting.size and free.get(route, 0) > 0
        ]
        if len(usable) == 1:
            ((queue, route),) = usable
            deliveries = queue.take_of(route, min(limit, free[route]), may)
            free[route] -= len(deliveries)
        while len(deliveries) < limit and (delivery := self._pop(free, may)) is not None:
            deliveries.append(delivery)
        for queue in self._lanes.values():
            queue.restore()
        self._drop_empty()
        return deliveries

    def _pop(self, room: RoomByRoute, may: MayTake) -> Delivery | None:
        while routes := {
            lane: route
            for lane, queue in self._lanes.items()
            if (route := queue.next_route(room)) is not None
        }:
            lane = self._turns.choose(routes) if len(routes) > 1 else next(iter(routes))
            delivery = self._lanes[lane].pop_of(routes[lane], room, may)
            if delivery is not None:
                return delivery
            if len(routes) > 1:
                self._turns.take_back(lane, routes)
        return None

    def take_of(self, route: str, limit: int, may: MayTake = always) -> list[Delivery]:
        """Take up to `limit` deliveries of one route, as `take` does."""
        return self.take(limit, lambda name: limit if name == route else 0, may)

    def drop_unready(self) -> None:
        """Drop deliveries that are no longer ready: revoked, or asked about again."""
        for lane in self._lanes.values():
            lane.drop_unready()
        self._drop_empty()

    def _of(self, route: str) -> list[TenantTurns]:
        return [lane.routes[route] for lane in self._lanes.values() if route in lane.routes]

    def _drop_empty(self) -> None:
        for lane, queue in self._lanes.items():
            queue.routes = {route: turns for route, turns in queue.routes.items() if turns.size}
            if not queue.routes:
                self._turns.forget_credit(lane)
        self._shelved.intersection_update(self.routes)
