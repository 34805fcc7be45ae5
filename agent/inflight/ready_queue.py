"""The ready queue: deliveries that may be claimed, by lane, route and tenant. Pure.

Turns are taken at four levels: lanes, routes in a lane, tenants on a route, and returned or new
deliveries of a tenant. So none of them starves. The deliveries of a shelved route keep their places
but not their bodies, so that the agent can read on to records of other routes.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice

from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.turns import LaneTurns, MayTake, TenantTurns, always
from docllm.schemas.task.record.lanes import Lane

RoomByRoute = dict[str, int]
# The ready deliveries of one lane. The route whose turn was last is at the end.
TurnsByRoute = dict[str, TenantTurns]


class ReadyQueue:
    """The ready queues, by lane and route. `weight_of` gives a tenant's part beside others."""

    def __init__(self, *, weight_of: Callable[[str], float] = lambda _tenant: 1.0) -> None:
        self._weight_of = weight_of
        self._lanes: dict[Lane, TurnsByRoute] = {lane: {} for lane in Lane}
        self._turns = LaneTurns()
        self._shelved: set[str] = set()

    def __len__(self) -> int:
        return sum(turns.size for routes in self._lanes.values() for turns in routes.values())

    @property
    def unshelved(self) -> int:
        """How many deliveries wait for routes that are not shelved."""
        return sum(map(self.unshelved_in, Lane))

    def unshelved_in(self, lane: Lane) -> int:
        """Return how many deliveries of a lane wait for routes that are not shelved."""
        return sum(
            turns.size for route, turns in self._lanes[lane].items() if route not in self._shelved
        )

    @property
    def routes(self) -> list[str]:
        """The routes that deliveries wait for."""
        return list(dict.fromkeys(chain.from_iterable(self._lanes.values())))

    @property
    def routes_in_turn(self) -> list[str]:
        """The routes that deliveries wait for, in the order of their next turns."""
        by_lane = {lane: iter(routes) for lane, routes in self._lanes.items()}
        return list(dict.fromkeys(self._turns.merge(by_lane)))

    def count(self, route: str) -> int:
        """Return how many deliveries wait for a route."""
        return sum(turns.size for turns in self._of(route))

    def is_shelved(self, route: str) -> bool:
        """Return whether a route's deliveries wait without their bodies."""
        return route in self._shelved

    def put(self, delivery: Delivery, *, was_waiting: bool) -> None:
        """Queue a delivery for its route."""
        routes = self._lanes[delivery.lane]
        if delivery.route not in routes:
            routes[delivery.route] = TenantTurns(self._weight_of)
        routes[delivery.route].put(delivery, was_waiting=was_waiting)

    def shelve(self, route: str) -> Iterator[Delivery]:
        """Shelve a route; return its ready deliveries, whose bodies the caller must drop."""
        self._shelved.add(route)
        return (
            delivery
            for turns in self._of(route)
            for delivery in turns
            if delivery.state is DeliveryState.READY
        )

    def unshelve(self, route: str) -> None:
        """Unshelve a route; its deliveries count again toward back-pressure."""
        self._shelved.discard(route)

    def next_of(self, route: str, limit: int) -> list[Delivery]:
        """Return the next deliveries of a route, about in the order in which they are taken."""
        queues = {
            lane: routes[route].next(limit)
            for lane, routes in self._lanes.items()
            if route in routes
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
            (routes, route)
            for routes in self._lanes.values()
            for route, turns in routes.items()
            if turns.size and free.get(route, 0) > 0
        ]
        if len(usable) == 1:  # there are no turns to take
            ((routes, route),) = usable
            _end_turn(routes, route)
            deliveries = routes[route].take(min(limit, free[route]), may)
            free[route] -= len(deliveries)
        while len(deliveries) < limit and (delivery := self._pop(free, may)) is not None:
            deliveries.append(delivery)
        for routes in self._lanes.values():
            for turns in routes.values():
                turns.restore()
        self._drop_empty()
        return deliveries

    def _pop(self, room: RoomByRoute, may: MayTake) -> Delivery | None:
        """Take the next delivery of a route that has room, and take it from the room."""
        while next_routes := {
            lane: route
            for lane, routes in self._lanes.items()
            if (route := _next_route(routes, room)) is not None
        }:
            has_turns = len(next_routes) > 1
            lane = self._turns.choose(next_routes) if has_turns else next(iter(next_routes))
            routes, route = self._lanes[lane], next_routes[lane]
            delivery = routes[route].pop(may)
            if delivery is not None:
                _end_turn(routes, route)
                room[route] -= 1
                return delivery
            if has_turns:
                self._turns.take_back(lane, next_routes)
        return None

    def take_of(self, route: str, limit: int, may: MayTake = always) -> list[Delivery]:
        """Take up to `limit` deliveries of one route, as `take` does."""
        return self.take(limit, lambda name: limit if name == route else 0, may)

    def drop_unready(self) -> None:
        """Drop deliveries that are no longer ready: revoked, or asked about again."""
        for routes in self._lanes.values():
            for turns in routes.values():
                turns.drop_unready()
        self._drop_empty()

    def _of(self, route: str) -> list[TenantTurns]:
        return [routes[route] for routes in self._lanes.values() if route in routes]

    def _drop_empty(self) -> None:
        """Drop the routes without deliveries: routes come from tasks, so names must not pile up."""
        for lane, routes in self._lanes.items():
            self._lanes[lane] = {route: turns for route, turns in routes.items() if turns.size}
            if not self._lanes[lane]:
                self._turns.forget_credit(lane)
        self._shelved.intersection_update(self.routes)


def _next_route(routes: TurnsByRoute, room: RoomByRoute) -> str | None:
    """Return the route whose turn it is, of those that have room and deliveries."""
    for route, turns in routes.items():
        if turns.size and room.get(route, 0) > 0:
            return route
    return None


def _end_turn(routes: TurnsByRoute, route: str) -> None:
    """Put a route behind the others of its lane."""
    if len(routes) > 1:
        routes[route] = routes.pop(route)
