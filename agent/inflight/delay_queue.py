"""The delay queue: deliveries that are claimed by another agent, early, or snoozed. Pure.

They hold up the watermark like all others, but they do not keep their bodies.
"""

import heapq
from collections.abc import Iterable
from itertools import count

from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.schemas.task.owner import agent_of

FIRST_S, MAX_S = 1.0, 15.0
MIN_HEAP = 1000  # stale entries are removed only from a larger heap


class DelayQueue:
    """A heap of deliveries, ordered by the time when the ledger is asked about them again.

    An entry of the heap is stale if its delivery has left the queue or got another entry; stale
    entries are skipped.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Delivery]] = []
        self._tidy_above = MIN_HEAP
        self._sequence = count()
        self._by_agent: dict[int, dict[int, Delivery]] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, delivery: Delivery, at_s: float) -> None:
        """Delay `delivery` until the clock shows `at_s`."""
        delivery.state = DeliveryState.DELAYED
        delivery.wake_at_s = at_s
        heapq.heappush(self._heap, (at_s, next(self._sequence), delivery))
        if len(self._heap) > self._tidy_above:
            self._drop_stale()

    def _drop_stale(self) -> None:
        """Drop stale entries."""
        for at_s, _, delivery in self._heap:
            if delivery.wake_at_s == at_s and delivery.state is not DeliveryState.DELAYED:
                self._forget_agent(delivery)
        self._heap = [
            entry
            for entry in self._heap
            if entry[2].wake_at_s == entry[0] and entry[2].state is DeliveryState.DELAYED
        ]
        heapq.heapify(self._heap)
        self._tidy_above = 2 * len(self._heap) + MIN_HEAP

    def put_while_held(self, delivery: Delivery, agent_id: int, now_s: float) -> None:
        """Delay a delivery whose task another agent has claimed.

        The ledger is asked again after 1 s, doubling to 15 s, and at once when that agent is gone.
        """
        delay_s = min(MAX_S, FIRST_S * 2 ** min(delivery.ask_count, 10))
        delivery.ask_count += 1
        self._by_agent.setdefault(agent_id, {})[delivery.task_id] = delivery
        self.put(delivery, now_s + delay_s)

    def take_due(self, now_s: float, limit: int) -> list[Delivery]:
        """Take up to `limit` deliveries that are due."""
        due: list[Delivery] = []
        while self._heap and self._heap[0][0] <= now_s and len(due) < limit:
            at_s, _, delivery = heapq.heappop(self._heap)
            if delivery.wake_at_s != at_s:
                continue  # a stale entry: the delivery was woken before, and may be delayed again
            self._forget_agent(delivery)
            if delivery.state is DeliveryState.DELAYED:
                delivery.state = DeliveryState.ASKING
                due.append(delivery)
        return due

    def _forget_agent(self, delivery: Delivery) -> None:
        agent_id = agent_of(delivery.row.owner) if delivery.row is not None else 0
        deliveries = self._by_agent.get(agent_id, {})
        if deliveries.get(delivery.task_id) is delivery:
            del deliveries[delivery.task_id]
            if not deliveries:
                del self._by_agent[agent_id]

    def snoozed_on(self, route: str) -> list[Delivery]:
        """Return the deliveries that wait since their task was snoozed on a route."""
        return [
            delivery
            for at_s, _, delivery in self._heap
            if delivery.snoozes
            and delivery.route == route
            and delivery.wake_at_s == at_s
            and delivery.state is DeliveryState.DELAYED
        ]

    def wake(self, agents: Iterable[int], now_s: float) -> int:
        """Make deliveries due now if one of these agents holds their task; return how many."""
        woken = 0
        for agent_id in agents:
            for delivery in self._by_agent.pop(agent_id, {}).values():
                if delivery.state is DeliveryState.DELAYED:
                    delivery.ask_count = 0
                    self.put(delivery, now_s)
                    woken += 1
        return woken
