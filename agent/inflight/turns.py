"""Turns among lanes and among tenants, so that none of them starves. Pure.

An unused turn is not lost: the lanes or tenants that have work share it, by the same weights.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from typing import TypeVar

from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.schemas.task.record.lanes import TURNS, Lane

# Separates tenant and type in the name of a queue of its own; see `TenantTurns`.
TYPE_SEPARATOR = "\n"
MIN_WEIGHT = 0.01  # with a smaller weight, a tenant would wait thousands of rounds for a turn
# The first FIRST_TASKS tasks of a new tenant get FIRST_TURNS of every four turns. With equal turns,
# ten tasks of a new tenant would take more than twice as long as without the other tenant: they
# would get half of the slots, and would first wait until a slot is free.
FIRST_TASKS, FIRST_TURNS = 10, 3

T = TypeVar("T")

# Whether a delivery may be taken now. A delivery for which it returns True is taken.
MayTake = Callable[[Delivery], bool]


def always(_delivery: Delivery) -> bool:
    """Let every delivery be taken."""
    return True


class LaneTurns:
    """Chooses the next lane by `TURNS`, evenly spread over the time."""

    def __init__(self) -> None:
        self._credit = dict.fromkeys(Lane, 0)

    def choose(self, lanes: Collection[Lane]) -> Lane:
        """Return the lane whose turn it is.

        `lanes` are the lanes that have work.
        """
        for lane in lanes:
            self._credit[lane] += TURNS[lane]
        chosen = max(lanes, key=lambda lane: (self._credit[lane], TURNS[lane]))
        self._credit[chosen] -= sum(TURNS[lane] for lane in lanes)
        return chosen

    def take_back(self, lane: Lane, lanes: Collection[Lane]) -> None:
        """Take the last choice back: the lane keeps its turn."""
        self._credit[lane] += sum(TURNS[other] for other in lanes)
        for other in lanes:
            self._credit[other] -= TURNS[other]

    def forget_credit(self, lane: Lane) -> None:
        """Reset the credit of a lane without work, so that it does not save up turns."""
        self._credit[lane] = 0

    def merge(self, queues: Mapping[Lane, Iterator[T]]) -> Iterator[T]:
        """Yield what these lanes have in the order of the next turns; use up no turns."""
        turns = LaneTurns()
        turns._credit.update(self._credit)
        remaining = dict(queues)
        while remaining:
            lane = turns.choose(remaining)
            item = next(remaining[lane], None)
            if item is None:
                del remaining[lane]
            else:
                yield item


@dataclass(slots=True)
class _Queue:
    """One tenant's deliveries.

    `returned` holds deliveries that waited before, or that a lost agent left behind; `new` holds
    those just read. `credit` is how many more it may take in this round.
    """

    new: deque[Delivery] = field(default_factory=deque)
    returned: deque[Delivery] = field(default_factory=deque)
    returned_next: bool = True
    credit: float = 0.0

    def __len__(self) -> int:
        return len(self.new) + len(self.returned)

    def first_ready(self) -> Delivery | None:
        """Return the next ready delivery, from both queues in turn; drop those before it."""
        while queue := self.next_queue:
            if queue[0].state is DeliveryState.READY:
                return queue[0]
            queue.popleft()
        return None

    def pop_first(self) -> None:
        """Take the delivery that `first_ready` returned."""
        queue = self.next_queue
        self.returned_next = queue is self.new
        queue.popleft()

    @property
    def next_queue(self) -> deque[Delivery]:
        return self.returned if (self.returned_next and self.returned) or not self.new else self.new

    def next(self, limit: int) -> Iterator[Delivery]:
        """Return the next deliveries, in the order in which they are taken."""
        in_order = (self.returned, self.new) if self.returned_next else (self.new, self.returned)
        return in_turn(*(islice(filter(_is_ready, queue), limit) for queue in in_order if queue))

    def drop_unready(self) -> None:
        """Drop deliveries that are no longer ready."""
        self.new = deque(filter(_is_ready, self.new))
        self.returned = deque(filter(_is_ready, self.returned))


class TenantTurns:
    """The deliveries of one route in one lane; tenants take turns by their weights.

    The tasks of a type with slots of its own wait in a queue of their own, so that those of the
    tenant's other types do not wait behind them. It takes turns like a tenant of the same weight.

    A new tenant goes ahead of the round with its first tasks, for three turns of four. A tenant
    without waiting tasks stays in the round until its next turn, so that it does not count as new
    with each task.

    A tenant whose next delivery may not be taken is set aside until `restore`, so that other
    tenants use the slots meanwhile. It keeps its turn: it is the next one that is asked for and
    taken. Otherwise a smaller call would use up the grant that was asked for its call.
    """

    def __init__(self, weight_of: Callable[[str], float]) -> None:
        self._weight_of = weight_of
        self._queues: dict[str, _Queue] = {}
        self._round: deque[str] = deque()  # the next one first
        self._new: dict[str, int] = {}  # how many tasks of each new tenant go ahead of the round
        self._new_in_row = 0  # tasks that went ahead since the last turn of the round
        self._set_aside: list[str] = []
        self.size = 0  # how many deliveries take turns

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Delivery]:
        for queue in self._queues.values():
            yield from (*queue.new, *queue.returned)

    def put(self, delivery: Delivery, *, was_waiting: bool) -> None:
        """Queue a delivery behind the others of its tenant."""
        tenant = delivery.queue_name or delivery.tenant
        if tenant not in self._queues:
            if self._queues:
                self._new[tenant] = FIRST_TASKS
            self._queues[tenant] = _Queue()
            self._round.append(tenant)
        queue = self._queues[tenant]
        (queue.returned if was_waiting else queue.new).append(delivery)
        self.size += 1

    def take(self, limit: int, may: MayTake) -> list[Delivery]:
        """Take up to `limit` deliveries that may be taken."""
        taken: list[Delivery] = []
        while len(taken) < limit:
            if len(self._round) == 1 and not self._new:
                return taken + self._take_alone(self._round[0], limit - len(taken), may)
            delivery = self.pop(may)
            if delivery is None:
                break
            taken.append(delivery)
        return taken

    def _take_alone(self, tenant: str, limit: int, may: MayTake) -> list[Delivery]:
        """Take deliveries of the only tenant, who takes turns with nobody."""
        queue, taken = self._queues[tenant], list[Delivery]()
        size = len(queue)
        while len(taken) < limit and (delivery := queue.first_ready()) is not None:
            if not may(delivery):
                self.size += len(queue) - size
                self._set_tenant_aside(tenant)
                return taken
            queue.pop_first()
            taken.append(delivery)
        self.size += len(queue) - size
        return taken

    def pop(self, may: MayTake = always) -> Delivery | None:
        """Take the next delivery that may be taken; None if there is none."""
        for source in self._new_first(self._pop_new, self._pop_round):
            delivery = source(may)
            if delivery is not None:
                return delivery
        return None

    def _new_first(self, new: T, others: T) -> tuple[T, T]:
        """Return first what is for new tenants, unless it is the turn of the round."""
        return (new, others) if self._new_in_row < FIRST_TURNS else (others, new)

    def _pop_new(self, may: MayTake) -> Delivery | None:
        """Take the next delivery of the new tenant that came first."""
        for tenant in list(self._new):
            if tenant in self._set_aside or self._first(tenant) is None:
                continue  # it was set aside, or it has no waiting tasks now but may get more
            delivery = self._take_of(tenant, may)
            self._new[tenant] -= 1
            # A tenant that may not begin a call loses the rest of its first turns; it is served as
            # the others are.
            if delivery is None or not self._new[tenant]:
                del self._new[tenant]
            if delivery is not None:
                self._new_in_row += 1
                return delivery
        return None

    def _pop_round(self, may: MayTake) -> Delivery | None:
        self._new_in_row = 0
        while self._round:
            tenant = self._round[0]
            queue = self._queues[tenant]
            if self._first(tenant) is None:
                # Tenants come from tasks, so unused names must not pile up.
                self._round.popleft()
                del self._queues[tenant]
                self._new.pop(tenant, None)
                continue
            if queue.credit < 1:
                queue.credit += max(
                    self._weight_of(tenant.partition(TYPE_SEPARATOR)[0]), MIN_WEIGHT
                )
            delivery = self._pop_of(tenant, may) if queue.credit >= 1 else None
            is_next = bool(self._round) and self._round[0] == tenant
            if is_next and (queue.credit < 1 or not queue):
                self._round.rotate(-1)
            if delivery is not None:
                return delivery
        return None

    def _pop_of(self, tenant: str, may: MayTake) -> Delivery | None:
        """Use up one turn of a tenant; take its next delivery."""
        self._queues[tenant].credit -= 1
        return self._take_of(tenant, may)

    def _take_of(self, tenant: str, may: MayTake) -> Delivery | None:
        """Take a tenant's next delivery; set the tenant aside if it may not be taken."""
        queue, delivery = self._queues[tenant], self._first(tenant)
        if delivery is None:
            return None
        if not may(delivery):
            self._set_tenant_aside(tenant)
            return None
        queue.pop_first()
        self.size -= 1
        return delivery

    def _set_tenant_aside(self, tenant: str) -> None:
        queue = self._queues[tenant]
        queue.credit = max(queue.credit, 1)
        self._round.remove(tenant)
        self._set_aside.append(tenant)
        self.size -= len(queue)

    def _first(self, tenant: str) -> Delivery | None:
        """Return a tenant's next delivery; those that were dropped before it are not counted."""
        queue = self._queues[tenant]
        if (first := queue.next_queue) and first[0].state is DeliveryState.READY:
            return first[0]
        before = len(queue)
        delivery = queue.first_ready()
        self.size += len(queue) - before
        return delivery

    def restore(self) -> None:
        """Let the tenants that were set aside take turns again, before the others."""
        self._round.extendleft(reversed(self._set_aside))
        self.size += sum(len(self._queues[tenant]) for tenant in self._set_aside)
        self._set_aside = []

    def next(self, limit: int) -> Iterator[Delivery]:
        """Return the deliveries for which places will be asked, the most urgent first."""
        in_order = dict.fromkeys(chain(*self._new_first(self._new, self._round)))
        # A tenant is still in the round, and may still be new, after its last task was taken.
        tenants = (
            tenant
            for tenant in in_order
            if tenant in self._queues and self._first(tenant) is not None
        )
        return in_turn(*(self._queues[tenant].next(limit) for tenant in islice(tenants, limit)))

    def drop_unready(self) -> None:
        """Drop deliveries that are no longer ready."""
        for queue in self._queues.values():
            queue.drop_unready()
        self._queues = {tenant: queue for tenant, queue in self._queues.items() if queue}
        self._round = deque(tenant for tenant in self._round if tenant in self._queues)
        self._new = {tenant: left for tenant, left in self._new.items() if tenant in self._queues}
        self.size = sum(map(len, self._queues.values()))


def _is_ready(delivery: Delivery) -> bool:
    return delivery.state is DeliveryState.READY


def in_turn(*queues: Iterable[Delivery]) -> Iterator[Delivery]:
    """Return the first of each, then the second of each, and so on."""
    if len(queues) == 1:
        return iter(queues[0])
    merged = chain.from_iterable(zip_longest(*queues))
    return (delivery for delivery in merged if delivery is not None)
