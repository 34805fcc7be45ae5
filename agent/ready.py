"""The entries that may be claimed, by route. What came back takes turns with what is new, so that neither starves the other. Pure.

A parked route takes no calls for a while: its entries keep their place without their bodies, so that others are read past them.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from agent.entry import Entry, State


@dataclass(slots=True)
class _Queue:
    """One route's entries. `back` waited, or was left behind by a dead agent; `new` was just read."""

    new: deque[Entry] = field(default_factory=deque)
    back: deque[Entry] = field(default_factory=deque)
    back_next: bool = True

    def __len__(self) -> int:
        return len(self.new) + len(self.back)

    def pop(self) -> Entry | None:
        """Take the next entry, from both in turn; None when there is none."""
        while self.new or self.back:
            first = self.back if (self.back_next and self.back) or not self.new else self.new
            self.back_next = first is self.new
            entry = first.popleft()
            if entry.state is State.READY:
                return entry
        return None

    def forget_gone(self) -> None:
        """Drop what is not ready any more."""
        self.new = deque(entry for entry in self.new if entry.state is State.READY)
        self.back = deque(entry for entry in self.back if entry.state is State.READY)


class Ready:
    """Queues by route."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._parked: set[str] = set()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    @property
    def unparked(self) -> int:
        """Return how many entries wait that may be claimed soon."""
        return sum(len(queue) for route, queue in self._queues.items() if route not in self._parked)

    @property
    def routes(self) -> list[str]:
        """Return the routes that entries wait for."""
        return list(self._queues)

    def count(self, route: str) -> int:
        """Return how many entries wait for a route."""
        return len(self._queues.get(route, ()))

    def is_parked(self, route: str) -> bool:
        """Return whether a route's entries are to be kept without their bodies."""
        return route in self._parked

    def put(self, entry: Entry, *, back: bool) -> None:
        """Let an entry wait for its route."""
        queue = self._queues.setdefault(entry.route, _Queue())
        (queue.back if back else queue.new).append(entry)

    def park(self, route: str) -> Iterator[Entry]:
        """Park a route; return its entries, whose bodies are to be dropped."""
        self._parked.add(route)
        queue = self._queues.get(route, _Queue())
        return (entry for entry in (*queue.new, *queue.back) if entry.state is State.READY)

    def unpark(self, route: str) -> None:
        """Take a route for one that is claimed from."""
        self._parked.discard(route)

    def take(self, limit: int, room: Callable[[str], int]) -> list[Entry]:
        """Take up to `limit` entries, from the routes in turn, and no more of a route than `room` says."""
        found: list[Entry] = []
        left = {route: room(route) for route in self._queues}
        while len(found) < limit and left:
            for route in list(left):
                entry = self._queues[route].pop() if left[route] > 0 and len(found) < limit else None
                if entry is None:
                    del left[route]
                else:
                    left[route] -= 1
                    found.append(entry)
        self._drop_empty()
        return found

    def take_of(self, route: str, limit: int) -> list[Entry]:
        """Take up to `limit` entries of one route."""
        return self.take(limit, lambda name: limit if name == route else 0)

    def forget_gone(self) -> None:
        """Drop the entries whose partitions went."""
        for queue in self._queues.values():
            queue.forget_gone()
        self._drop_empty()

    def _drop_empty(self) -> None:
        """Routes come from tasks: a name that nobody waits for any more is not kept."""
        for route in [route for route, queue in self._queues.items() if not queue]:
            del self._queues[route]
            self._parked.discard(route)
