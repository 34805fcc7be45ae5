"""The deliveries of one agent: one active delivery for each task, and the queues.

Pure; time is passed in.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from itertools import chain
from types import MappingProxyType

from docllm.agent.inflight.delay_queue import DelayQueue
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.ready_queue import ReadyQueue
from docllm.agent.inflight.records_behind import RecordsBehind, is_alike
from docllm.agent.inflight.turns import TYPE_SEPARATOR, MayTake, always
from docllm.agent.ports.outcome import Succeeded
from docllm.agent.routes import RoutePlan
from docllm.schemas.task.record.lanes import Lane


class KeptAnswers:
    """Keeps answers that were paid and not settled, for their tasks' next claims.

    Their number and bytes are bounded; the oldest ones are dropped.
    """

    def __init__(self, limits: InFlightLimits) -> None:
        self._limits = limits
        self._bytes: dict[Delivery, int] = {}  # in the order of their last settle

    def keep(self, delivery: Delivery, answer: Succeeded) -> int:
        """Keep an answer for its task's next claim; return how many others are dropped."""
        kept, limits = self._bytes, self._limits
        kept.pop(delivery, None)
        kept[delivery] = len(answer.body)
        delivery.kept_answer = answer
        dropped = 0
        while len(kept) > limits.kept_answers or sum(kept.values()) > limits.kept_answers_bytes:
            oldest = next(iter(kept))
            del kept[oldest]
            oldest.kept_answer = None
            dropped += 1
        return dropped

    def forget(self, delivery: Delivery) -> None:
        """Drop the answer of a delivery, if it has one."""
        delivery.kept_answer = None
        self._bytes.pop(delivery, None)


class InFlightTable:
    """Moves deliveries between their states; knows nothing of the ledger or of calls.

    `lanes` are by topic; `weight_of` gives a tenant's part beside others. `has_own_queue` returns
    whether a type's tasks wait in a queue of their own, apart from their tenant's other tasks.
    """

    def __init__(
        self,
        *,
        limits: InFlightLimits,
        lanes: Mapping[str, Lane] = MappingProxyType({}),
        weight_of: Callable[[str], float] = lambda _tenant: 1.0,
        has_own_queue: Callable[[str], bool] = lambda _type: False,
    ) -> None:
        self.behind = RecordsBehind()
        self.kept_answers = KeptAnswers(limits)
        self._lanes = lanes
        self._has_own_queue = has_own_queue
        self._by_task: dict[int, Delivery] = {}
        self._to_ask: deque[tuple[Lane, Delivery]] = deque()
        self._asked_in = Counter[Lane]()  # the deliveries in `_to_ask`, by the lane noted there
        self.ready = ReadyQueue(weight_of=weight_of)
        self.delayed = DelayQueue()
        self._suspects: list[Delivery] = []
        self._bytes = dict.fromkeys(Lane, 0)

    @property
    def bodies_bytes(self) -> int:
        """How many bytes the bodies in memory have."""
        return sum(self._bytes.values())

    def bytes_of(self, lane: Lane) -> int:
        """Return how many bytes the bodies of a lane's deliveries have."""
        return self._bytes[lane]

    def waiting_in(self, lane: Lane) -> int:
        """Return how many deliveries of a lane wait with their bodies for a question or a claim."""
        return self._asked_in[lane] + self.ready.unshelved_in(lane)

    @property
    def shelved(self) -> int:
        """How many deliveries are ready for shelved routes."""
        return len(self.ready) - self.ready.unshelved

    @property
    def claimable_routes(self) -> list[str]:
        """The routes that deliveries are ready for, in turn; those of crash suspects are first."""
        suspects = [suspect.route for suspect in self._suspects]
        return list(dict.fromkeys(suspects + self.ready.routes_in_turn))

    def next_for(self, route: str, limit: int) -> list[Delivery]:
        """Return the deliveries of a route that are taken next, a crash suspect first."""
        suspects = [
            suspect
            for suspect in self._suspects
            if suspect.route == route and suspect.state is DeliveryState.READY
        ]
        return (suspects[:1] + self.ready.next_of(route, limit))[:limit]

    def add(self, delivery: Delivery, now_s: float, *, redelivered: bool) -> None:
        """Add a new delivery.

        A second record of a task waits behind the first, so one claim call never names a task
        twice. If the first one is in the delay queue, the ledger is asked about it again, because
        the second record may have been published to let the task run at once.
        """
        delivery.lane = self._lanes.get(delivery.partition.topic, Lane.NORMAL)
        self._bytes[delivery.lane] += len(delivery.value or b"")
        first = self._by_task.setdefault(delivery.task_id, delivery)
        if first is not delivery:
            self.behind.put(delivery)
            self._compare(first, delivery)
            if first.state is DeliveryState.DELAYED and first.wake_at_s > now_s:
                self.delayed.put(first, now_s)
        elif redelivered:
            self.queue_for_question(delivery)
        else:
            # The next attempt of a task has waited in its tier, although it may be read late.
            self.queue_for_claim(delivery, was_waiting=delivery.publication.counted_before > 0)

    def _compare(self, first: Delivery, delivery: Delivery) -> None:
        """Compare the bodies of a task's first delivery and of a new one behind it.

        A copy's body is dropped if the first delivery's body was. If the two records differ, the
        ledger is asked which record belongs to the task before the first delivery is claimed.
        """
        if first.value is None and is_alike(first, delivery):
            self._drop(delivery)
        elif (
            first.digest != delivery.digest
            and first.state is DeliveryState.READY
            and first.row is None
        ):
            self.queue_for_question(first)
            self.ready.drop_unready()

    def queue_for_question(self, delivery: Delivery) -> None:
        """Queue the delivery for the next question to the ledger."""
        delivery.state = DeliveryState.ASKING
        self._to_ask.append((delivery.lane, delivery))
        self._asked_in[delivery.lane] += 1

    def queue_for_claim(self, delivery: Delivery, *, was_waiting: bool = False) -> None:
        """Queue the delivery for a claim once a slot is free.

        `was_waiting`: the delivery has waited before, and its offset blocks the watermark.
        """
        delivery.state, delivery.route = DeliveryState.READY, delivery.own_route
        self._follow_row(delivery)
        if delivery.suspect:
            # It may wait for long, and the ledger is known to have its body.
            self.drop_bodies(delivery)
            self._suspects.append(delivery)
        elif self._may_wait(delivery):
            has_own_queue = self._has_own_queue(delivery.task_type)
            delivery.queue_name = (
                f"{delivery.tenant}{TYPE_SEPARATOR}{delivery.task_type}" if has_own_queue else ""
            )
            self.ready.put(delivery, was_waiting=was_waiting)

    def _follow_row(self, delivery: Delivery) -> None:
        """Set the delivery's lane, tenant and route from its row, if the ledger has returned one.

        The record alone is not enough: it may come from a tier or lack a body.
        """
        if delivery.row is not None:
            size = len(delivery.value or b"")
            self._bytes[delivery.lane] -= size
            delivery.lane, delivery.tenant = delivery.row.lane, delivery.row.tenant
            self._bytes[delivery.lane] += size

    def load_body(self, delivery: Delivery, value: bytes) -> None:
        """Give a delivery its body back."""
        delivery.value = value
        self._bytes[delivery.lane] += len(value)

    def shelve(self, route: str) -> None:
        """Keep a route's ready deliveries without their bodies until the route is unshelved."""
        if not self.ready.is_shelved(route):
            for delivery in self.ready.shelve(route):
                self._may_wait(delivery)
            self.ready.drop_unready()

    def _may_wait(self, delivery: Delivery) -> bool:
        """Return whether the delivery may wait for its route.

        For a shelved route, its body is dropped only if the ledger is known to have it. Otherwise
        the ledger is asked first.
        """
        if self.ready.is_shelved(delivery.route):
            if delivery.row is None:
                self.queue_for_question(delivery)
                return False
            self.drop_bodies(delivery)
        return True

    def delay(self, delivery: Delivery, at_s: float) -> None:
        """Delay the delivery, without its body, until the clock shows `at_s`."""
        self.drop_bodies(delivery)
        self.delayed.put(delivery, at_s)

    def delay_while_held(self, delivery: Delivery, agent_id: int, now_s: float) -> None:
        """Delay the delivery, without its body, while another agent works on its task."""
        self.drop_bodies(delivery)
        self.delayed.put_while_held(delivery, agent_id, now_s)

    def ask_about_batches(self, batches: frozenset[str]) -> int:
        """Queue all waiting deliveries of these batches for a question; return how many."""
        if not batches:
            return 0
        return self._ask_about(lambda delivery: delivery.publication.batch in batches)

    def ask_about_all(self) -> int:
        """Queue all waiting deliveries for a question; return how many."""
        return self._ask_about(lambda _: True)

    def _ask_about(self, matches: Callable[[Delivery], bool]) -> int:
        waiting = [
            delivery
            for delivery in self._by_task.values()
            if delivery.state in {DeliveryState.READY, DeliveryState.DELAYED} and matches(delivery)
        ]
        for delivery in waiting:
            self.queue_for_question(delivery)
        self.ready.drop_unready()
        return len(waiting)

    def renew_plans(self, renewed: Callable[[RoutePlan], RoutePlan]) -> None:
        """Give all deliveries their plans by changed settings.

        Ready deliveries that begin on another route by then are asked about again.
        """
        for delivery in chain(self._by_task.values(), self.behind):
            delivery.plan = renewed(delivery.plan)
        self._ask_about(
            lambda delivery: (
                delivery.state is DeliveryState.READY and delivery.route != delivery.own_route
            )
        )

    def take_to_ask(self, now_s: float, limit: int) -> list[Delivery]:
        """Take deliveries to ask the ledger about; due ones of the delay queue come first."""
        return self.delayed.take_due(now_s, limit // 2) + self._take_asked(limit - limit // 2)

    def _take_asked(self, limit: int) -> list[Delivery]:
        deliveries: list[Delivery] = []
        while self._to_ask and len(deliveries) < limit:
            lane, delivery = self._to_ask.popleft()
            self._asked_in[lane] -= 1
            if delivery.state is DeliveryState.ASKING:
                deliveries.append(delivery)
        return deliveries

    def take_ready(
        self, limit: int, room: Callable[[str], int], may: MayTake = always
    ) -> list[Delivery]:
        """Take deliveries to claim, as `ReadyQueue.take` does."""
        return _claiming(self.ready.take(limit, room, may))

    def take_suspect(self, may: Callable[[Delivery], bool]) -> Delivery | None:
        """Take the next crash suspect that satisfies `may`; None if there is none.

        The suspect over which most agents were lost comes first. `may` is asked until it is
        satisfied once.
        """
        self._suspects = [
            delivery for delivery in self._suspects if delivery.state is DeliveryState.READY
        ]
        by_losses = sorted(self._suspects, key=_losses, reverse=True)
        chosen = next(filter(may, by_losses), None)
        if chosen is not None:
            self._suspects.remove(chosen)
            chosen.state = DeliveryState.CLAIMING
        return chosen

    @property
    def knows_suspect(self) -> bool:
        """Whether a crash suspect waits."""
        return bool(self._suspects)

    @property
    def lone_suspects(self) -> list[Delivery]:
        """The waiting crash suspects beside which nothing may run."""
        return [
            delivery
            for delivery in self._suspects
            if delivery.state is DeliveryState.READY and delivery.runs_alone
        ]

    def take_ready_for(self, route: str, limit: int, may: MayTake = always) -> list[Delivery]:
        """Take deliveries of one route to claim, as `ReadyQueue.take` does."""
        return _claiming(self.ready.take_of(route, limit, may))

    def drop_bodies(self, delivery: Delivery) -> None:
        """Drop the bodies of the delivery and of its copies, which wait as long as it does."""
        self._drop(delivery)
        for copy in self.behind.alike(delivery):
            self._drop(copy)

    def _drop(self, delivery: Delivery) -> None:
        if delivery.value is not None:
            self._bytes[delivery.lane] -= len(delivery.value)
            delivery.value = delivery.line = None

    def remove(self, delivery: Delivery) -> None:
        """Remove an ended delivery; the next record of its task takes its place."""
        delivery.state = DeliveryState.ENDED
        if delivery.kept_answer is not None:
            self.kept_answers.forget(delivery)
        self._drop(delivery)
        if self._by_task.get(delivery.task_id) is not delivery:
            return
        has_next = delivery.task_id in self.behind.by_task
        following = self.behind.pop_next(delivery.task_id) if has_next else None
        if following is None:
            del self._by_task[delivery.task_id]
            return
        self._by_task[delivery.task_id] = following
        self.queue_for_question(following)

    def is_own(self, delivery: Delivery) -> bool | None:
        """Return whether key and value are those of the task that the record names.

        Returns None until the ledger has answered; its answer about a task's first record covers
        the task's other records. A record without a value counts as the task's own.
        """
        first = self._by_task.get(delivery.task_id, delivery)
        if delivery.row is not None or delivery.digest is None:
            return True
        return (
            None if first.row is None or first.digest is None else first.digest == delivery.digest
        )

    def due_at_s(self, delivery: Delivery) -> float:
        """Return when the ledger is asked again about a delayed task, or 0."""
        first = self._by_task.get(delivery.task_id, delivery)
        return first.wake_at_s if first.state is DeliveryState.DELAYED else 0.0


def _losses(delivery: Delivery) -> int:
    return 0 if delivery.row is None else delivery.row.lease_losses


def _claiming(deliveries: list[Delivery]) -> list[Delivery]:
    for delivery in deliveries:
        delivery.state = DeliveryState.CLAIMING
    return deliveries
