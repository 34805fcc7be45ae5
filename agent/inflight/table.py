"""The deliveries of one agent: one active delivery for each task, and the queues.

Pure; time is passed in.
"""

from collections import deque
from collections.abc import Callable, Iterable

from agent.inflight.delay_queue import DelayQueue
from agent.inflight.delivery import Delivery, DeliveryState
from agent.inflight.limits import Limits
from agent.inflight.ready_queue import ReadyQueue


class InFlightTable:
    """Moves deliveries between their states; knows nothing of the ledger or of calls."""

    def __init__(self, *, limits: Limits) -> None:
        self._limits = limits
        self._by_task: dict[int, Delivery] = {}
        self._behind: dict[int, deque[Delivery]] = {}  # by task: its records that came later
        self._to_ask: deque[Delivery] = deque()
        self._ready = ReadyQueue()
        self._hold = DelayQueue()
        self._suspects: list[Delivery] = []
        self._paid: deque[Delivery] = deque()
        self.bodies_bytes = 0

    @property
    def waiting(self) -> int:
        """Return how many deliveries with bodies wait for a question or a claim."""
        return len(self._to_ask) + self._ready.unparked

    @property
    def held(self) -> int:
        """Return how many deliveries are in the delay queue."""
        return len(self._hold)

    @property
    def parked(self) -> int:
        """Return how many deliveries are ready for parked routes."""
        return len(self._ready) - self._ready.unparked

    @property
    def routes(self) -> list[str]:
        """Return the routes that deliveries are ready for."""
        return self._ready.routes

    def ready_for(self, route: str) -> int:
        """Return how many deliveries are ready for a route."""
        return self._ready.count(route)

    def arrive(self, entry: Delivery, now_s: float, *, redelivered: bool) -> None:
        """Add a new delivery.

        A second record of a task waits behind the first, so one claim call never names a task
        twice. If the first one is in the delay queue, the ledger is asked about it again, because
        the second record may have been published to let the task run at once.
        """
        self.bodies_bytes += len(entry.value or b"")
        first = self._by_task.setdefault(entry.task_id, entry)
        if first is not entry:
            entry.state = DeliveryState.HELD
            self._behind.setdefault(entry.task_id, deque()).append(entry)
            self._compare(first, entry)
            if first.state is DeliveryState.HELD and first.wake_s > now_s:
                self._hold.put(first, now_s)
        elif redelivered:
            self.ask(entry)
        else:
            self.ready(entry)

    def _compare(self, first: Delivery, entry: Delivery) -> None:
        """Compare the bodies of a task's first delivery and of a new one behind it.

        A copy's body is dropped if the first one's was. If the two records differ, the ledger is
        asked which of them is the task's, before the first one's turn comes.
        """
        if first.value is None and _alike(first, entry):
            self._drop(entry)
        elif (
            first.digest != entry.digest
            and first.state is DeliveryState.READY
            and first.row is None
        ):
            self.ask(first)
            self._ready.forget_gone()

    def ask(self, entry: Delivery) -> None:
        """Queue the delivery for the next question to the ledger."""
        entry.state = DeliveryState.ASKING
        self._to_ask.append(entry)

    def ready(self, entry: Delivery, *, back: bool = False) -> None:
        """Queue the delivery for a claim once a slot is free.

        `back` means that it has waited before, and that its offset holds up the watermark.
        """
        entry.state = DeliveryState.READY
        if entry.suspect:
            self.shed(entry)  # it may wait for long, and the ledger is known to have its body
            self._suspects.append(entry)
        elif self._may_wait(entry):
            self._ready.put(entry, back=back)

    def park(self, route: str) -> None:
        """Keep a route's ready deliveries without their bodies until the route is unparked."""
        if not self._ready.is_parked(route):
            for entry in self._ready.park(route):
                self._may_wait(entry)
            self._ready.forget_gone()

    def _may_wait(self, entry: Delivery) -> bool:
        """Return whether the delivery may wait for its route.

        For a parked route, its body is dropped only if the ledger is known to have it. Otherwise
        the ledger is asked first.
        """
        if self._ready.is_parked(entry.route):
            if entry.row is None:
                self.ask(entry)
                return False
            self.shed(entry)
        return True

    def unpark(self, route: str) -> None:
        """Keep the bodies of a route's ready deliveries again."""
        self._ready.unpark(route)

    def hold(self, entry: Delivery, at_s: float) -> None:
        """Put the delivery into the delay queue without its body until the clock shows `at_s`."""
        self.shed(entry)
        self._hold.put(entry, at_s)

    def hold_for(self, entry: Delivery, agent_id: int, now_s: float) -> None:
        """Put the delivery into the delay queue while another agent works on its task.

        Its body is dropped.
        """
        self.shed(entry)
        self._hold.put_held(entry, agent_id, now_s)

    def wake(self, agents: Iterable[int], now_s: float) -> int:
        """Make deliveries due now if one of these agents holds their task; return how many."""
        return self._hold.wake(agents, now_s)

    def next_due_s(self) -> float | None:
        """Return when the next delivery of the delay queue is due."""
        return self._hold.next_s()

    def take_to_ask(self, now_s: float, limit: int) -> list[Delivery]:
        """Take deliveries to ask the ledger about; due ones of the delay queue come first."""
        return self._hold.due(now_s, limit // 2) + _take(
            self._to_ask, DeliveryState.ASKING, limit - limit // 2
        )

    def take_ready(self, limit: int, room: Callable[[str], int]) -> list[Delivery]:
        """Take deliveries to claim, of each route at most as many as `room` returns."""
        return _claiming(self._ready.take(limit, room))

    def take_suspect(self, may: Callable[[Delivery], bool]) -> Delivery | None:
        """Take the next crash suspect that satisfies `may`; None if there is none.

        The suspect over which most agents were lost comes first.
        """
        self._suspects = [entry for entry in self._suspects if entry.state is DeliveryState.READY]
        chosen = max(filter(may, self._suspects), key=_losses, default=None)
        if chosen is not None:
            self._suspects.remove(chosen)
            chosen.state = DeliveryState.CLAIMING
        return chosen

    def any_suspect(self, which: Callable[[Delivery], bool]) -> bool:
        """Return whether any waiting crash suspect satisfies `which`."""
        return any(entry.state is DeliveryState.READY and which(entry) for entry in self._suspects)

    def take_ready_for(self, route: str, limit: int) -> list[Delivery]:
        """Take deliveries of one route to claim."""
        return _claiming(self._ready.take_of(route, limit))

    def forget_gone(self) -> None:
        """Drop deliveries that ended while they waited in the ready queue."""
        self._ready.forget_gone()

    def shed(self, entry: Delivery) -> None:
        """Drop the bodies of the delivery and of its copies, which wait as long as it does."""
        self._drop(entry)
        self._drop_copies(entry)

    def _drop_copies(self, entry: Delivery) -> None:
        for behind in self._behind.get(entry.task_id, ()):
            if _alike(entry, behind):
                self._drop(behind)

    def _drop(self, entry: Delivery) -> None:
        self.bodies_bytes -= len(entry.value or b"")
        entry.shed()

    def end(self, entry: Delivery) -> None:
        """Forget a delivery; the next record of its task takes its place."""
        entry.state = DeliveryState.GONE
        entry.paid = None
        self._drop(entry)
        if self._by_task.get(entry.task_id) is not entry:
            return
        following = self._next_behind(entry.task_id)
        if following is None:
            del self._by_task[entry.task_id]
            self._behind.pop(entry.task_id, None)
            return
        self._behind[entry.task_id].popleft()
        self._by_task[entry.task_id] = following
        self.ask(following)

    def take_copies(self, entry: Delivery, fence: int) -> list[Delivery]:
        """Take the queued copies of a delivery's task, up to this fence.

        A record without a value is a copy of any record. A record with another value only names the
        same task, and the ledger must be asked about it.
        """
        return self._take_behind(
            entry,
            lambda behind: (
                behind.digest in {None, entry.digest} and behind.publication.fence <= fence
            ),
        )

    def is_own(self, entry: Delivery) -> bool | None:
        """Return whether key and value are those of the task that the record names.

        Returns None while the ledger has not answered. Its answer about a task's first record
        covers all others of the task. A record without a value counts as the task's own.
        """
        first = self._by_task.get(entry.task_id, entry)
        if entry.row is not None or entry.digest is None:
            return True
        return None if first.row is None or first.digest is None else first.digest == entry.digest

    def due_s(self, entry: Delivery) -> float:
        """Return when the ledger is asked again about a delayed task, or 0."""
        first = self._by_task.get(entry.task_id, entry)
        return first.wake_s if first.state is DeliveryState.HELD else 0.0

    def take_foreign(self, entry: Delivery) -> list[Delivery]:
        """Take the records behind a known delivery that have another value.

        The ledger knows the delivery, so these foreign records only name its task.
        """
        return self._take_behind(
            entry,
            lambda behind: entry.digest is not None and behind.digest not in {None, entry.digest},
        )

    def take_alike(self, entry: Delivery) -> list[Delivery]:
        """Take queued copies of a foreign record: same key and value, same or higher fence."""
        return self._take_behind(
            entry,
            lambda behind: (
                _alike(entry, behind) and behind.publication.fence >= entry.publication.fence
            ),
        )

    def _take_behind(self, entry: Delivery, which: Callable[[Delivery], bool]) -> list[Delivery]:
        behind = self._behind.get(entry.task_id)
        if not behind:
            return []
        taken = [
            one
            for one in behind
            if one.state is DeliveryState.HELD and one is not entry and which(one)
        ]
        if taken:
            gone = set(taken)
            self._behind[entry.task_id] = deque(one for one in behind if one not in gone)
        return taken

    def _next_behind(self, task_id: int) -> Delivery | None:
        behind = self._behind.get(task_id, deque())
        while behind and behind[0].state is DeliveryState.GONE:
            behind.popleft()
        return behind[0] if behind else None

    def keep_paid(self, entry: Delivery) -> None:
        """Bound the number of answers that wait in memory for their task's next claim."""
        self._paid.append(entry)
        if len(self._paid) > self._limits.paid_answers:
            self._paid.popleft().paid = None


def _alike(one: Delivery, other: Delivery) -> bool:
    """Return whether two records have the same key and value; False for one without a value."""
    return one.digest is not None and one.digest == other.digest


def _losses(entry: Delivery) -> int:
    return 0 if entry.row is None else entry.row.lease_losses


def _claiming(entries: list[Delivery]) -> list[Delivery]:
    for entry in entries:
        entry.state = DeliveryState.CLAIMING
    return entries


def _take(queue: deque[Delivery], state: DeliveryState, limit: int) -> list[Delivery]:
    found: list[Delivery] = []
    while queue and len(found) < limit:
        entry = queue.popleft()
        if entry.state is state:
            found.append(entry)
    return found
