"""The ready queue: deliveries that may be claimed, by route. Pure.

Returned deliveries take turns with new ones, so that neither kind starves. A shelved route takes no
calls for a while. Its deliveries keep their place without their bodies, so that records of other
routes are read past them.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest

from agent.inflight.delivery import Delivery, DeliveryState


@dataclass(slots=True)
class _Queue:
    """One route's ready deliveries.

    `back` holds deliveries that waited before, or that a dead agent left behind; `new` holds those
    just read.
    """

    new: deque[Delivery] = field(default_factory=deque)
    back: deque[Delivery] = field(default_factory=deque)
    back_next: bool = True

    def __len__(self) -> int:
        return len(self.new) + len(self.back)

    def pop(self) -> Delivery | None:
        """Take the next delivery, from both queues in turn; None if there is none."""
        while self.new or self.back:
            queue = self.back if (self.back_next and self.back) or not self.new else self.new
            self.back_next = queue is self.new
            delivery = queue.popleft()
            if delivery.state is DeliveryState.READY:
                return delivery
        return None

    def forget_gone(self) -> None:
        """Drop deliveries that are no longer ready."""
        self.new = deque(delivery for delivery in self.new if delivery.state is DeliveryState.READY)
        self.back = deque(
            delivery for delivery in self.back if delivery.state is DeliveryState.READY
        )


class ReadyQueue:
    """The ready queues, by route."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._shelved: set[str] = set()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def unshelved(self) -> int:
        """Return how many deliveries wait for routes that are not shelved."""
        return sum(
            len(queue) for route, queue in self._queues.items() if route not in self._shelved
        )

    @property
    def routes(self) -> list[str]:
        """Return the routes that deliveries wait for."""
        return list(self._queues)

    def count(self, route: str) -> int:
        """Return how many deliveries wait for a route."""
        return len(self._queues.get(route, ()))

    def is_shelved(self, route: str) -> bool:
        """Return whether a route's deliveries wait without their bodies."""
        return route in self._shelved

    def put(self, delivery: Delivery, *, back: bool) -> None:
        """Queue a delivery for its route."""
        queue = self._queues.setdefault(delivery.route, _Queue())
        (queue.back if back else queue.new).append(delivery)

    def shelve(self, route: str) -> Iterator[Delivery]:
        """Shelve a route; return its ready deliveries, whose bodies the caller must drop."""
        self._shelved.add(route)
        queue = self._queues.get(route, _Queue())
        return (
            delivery
            for delivery in (*queue.new, *queue.back)
            if delivery.state is DeliveryState.READY
        )

    def unshelve(self, route: str) -> None:
        """Unshelve a route, so that its deliveries count as claimable soon."""
        self._shelved.discard(route)

    def next_of(self, route: str, limit: int) -> list[Delivery]:
        """Return the next deliveries of a route, about in the order in which they are taken."""
        queue = self._queues.get(route)
        if queue is None:
            return []
        pairs = zip_longest(islice(queue.back, limit), islice(queue.new, limit))
        ready = (
            delivery
            for delivery in chain.from_iterable(pairs)
            if delivery is not None and delivery.state is DeliveryState.READY
        )
        return list(islice(ready, limit))

    def take(self, limit: int, room: Callable[[str], int]) -> list[Delivery]:
        """Take up to `limit` deliveries, from the routes in turn.

        Of each route, at most as many as `room` returns are taken.
        """
        taken: list[Delivery] = []
        left = {route: room(route) for route in self._queues}
        while len(taken) < limit and left:
            for route in list(left):
                delivery = (
                    self._queues[route].pop() if left[route] > 0 and len(taken) < limit else None
                )
                if delivery is None:
                    del left[route]
                else:
                    left[route] -= 1
                    taken.append(delivery)
        self._drop_empty()
        return taken

    def take_of(self, route: str, limit: int) -> list[Delivery]:
        """Take up to `limit` deliveries of one route."""
        return self.take(limit, lambda name: limit if name == route else 0)

    def forget_gone(self) -> None:
        """Drop the deliveries whose partitions were revoked."""
        for queue in self._queues.values():
            queue.forget_gone()
        self._drop_empty()

    def _drop_empty(self) -> None:
        """Drop empty queues. Routes come from tasks, so unused names must not pile up."""
        for route in [route for route, queue in self._queues.items() if not queue]:
            del self._queues[route]
            self._shelved.discard(route)
