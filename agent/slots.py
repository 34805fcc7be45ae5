"""The slots in which claimed tasks run. A task runs under its lease; losing its partition does not end it."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from agent.entry import Entry, State
from agent.outcome import Cancelled, Dead, Failure, Outcome, Released, Snooze, Spent
from agent.ports import Clock
from agent.route import Route
from agent.settle import Settler
from agent.telemetry import Counts
from agent.worker import Worker

# A task that agents were lost over twice may be what kills them: few at once, and only after something else went well.
SUSPECT_LOSSES, SUSPECT_SLOTS, SUSPECT_AFTER_S = 2, 2, 60.0
INTERNAL_S = 60.0

log = logging.getLogger(__name__)


class Slots:
    """Runs claimed entries, `size` at once, and hands their outcomes to the settler."""

    def __init__(
        self,
        *,
        size: int,
        worker: Worker,
        settler: Settler,
        route: Route,
        clock: Clock,
        counts: Counts,
        cancelled: Callable[[], frozenset[int]],
        freed: Callable[[], None],
    ) -> None:
        self.size = size
        self._worker = worker
        self._settler = settler
        self._route = route
        self._clock = clock
        self._counts = counts
        self._cancelled = cancelled
        self._freed = freed
        self._running: dict[Entry, asyncio.Task[None]] = {}
        self._reserved = 0
        self._suspects: deque[Entry] = deque()
        self._suspects_running = 0
        self._began_s = clock.now_s()
        self._closed = False

    @property
    def running(self) -> int:
        """Return how many calls are in flight."""
        return len(self._running)

    def room(self) -> int:
        """Return how many more tasks may be claimed."""
        if self._closed or self._settler.unsettled > 2 * self.size:
            return 0
        busy = len(self._running) + self._reserved
        return min(self._route.room(self._clock.now_s(), busy, self.size), self.size - busy)

    @contextmanager
    def reserved(self, count: int) -> Iterator[None]:
        """Keep slots for a claim that is under way."""
        self._reserved += count
        try:
            yield
        finally:
            self._reserved -= count

    def start(self, entry: Entry) -> None:
        """Run a claimed entry, or settle it at once when there is nothing to run."""
        row = entry.row
        if row is None:
            raise AssertionError(f"task {entry.task_id} is not claimed")
        if entry.paid is not None:
            self._end(entry, entry.paid)
        elif row.batch_id in self._cancelled():
            self._end(entry, Cancelled())
        elif row.expired:
            self._end(entry, Dead(Failure("EXPIRED", "its deadline passed before this attempt"), Spent(), "expired"))
        elif self._closed or entry.lease is None or not entry.lease.fresh(self._clock.now_s()):
            self.give_back(entry)
        elif row.lease_losses >= SUSPECT_LOSSES:
            entry.state = State.WAITING
            self._suspects.append(entry)
            self._start_suspects()
        else:
            self._run(entry)

    def give_back(self, entry: Entry) -> None:
        """Release a claim that was not begun."""
        self._end(entry, Released())

    def forget(self, entry: Entry) -> None:
        """Release an entry that still waits for a suspect's slot; its partition went."""
        if entry.state is State.WAITING:
            self._suspects.remove(entry)
            self.give_back(entry)

    def tick(self) -> None:
        """Start suspects whose time has come."""
        self._start_suspects()

    def close(self) -> None:
        """Start nothing more; give back what was not begun."""
        self._closed = True
        while self._suspects:
            self.give_back(self._suspects.popleft())

    async def finish(self, timeout_s: float) -> None:
        """Wait for the running calls; after `timeout_s` cancel and release what is left."""
        if self._running and timeout_s > 0:
            await asyncio.wait(self._running.values(), timeout=timeout_s)
        left = list(self._running.values())
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)

    def _run(self, entry: Entry) -> None:
        entry.state = State.RUNNING
        task = asyncio.get_running_loop().create_task(self._work(entry))
        self._running[entry] = task

    async def _work(self, entry: Entry) -> None:
        self._counts.calls += 1
        outcome: Outcome = Released()
        try:
            outcome = await self._worker.work(entry)
            self._route.note(outcome, self._clock.now_s())
        except Exception as error:
            log.exception("the attempt at task %d ended in a bug", entry.task_id)
            outcome = Snooze(Failure("INTERNAL", type(error).__name__), Spent(), INTERNAL_S)
        finally:
            del self._running[entry]
            self._end(entry, outcome)
            self._freed()

    def _start_suspects(self) -> None:
        lonely = self._counts.last_settled_s is None and self._clock.now_s() - self._began_s < SUSPECT_AFTER_S
        while self._suspects and self._suspects_running < SUSPECT_SLOTS and not lonely:
            entry = self._suspects.popleft()
            self._suspects_running += 1
            self._run(entry)
            self._running[entry].add_done_callback(self._suspect_done)

    def _suspect_done(self, _task: asyncio.Task[None]) -> None:
        self._suspects_running -= 1
        self._start_suspects()

    def _end(self, entry: Entry, outcome: Outcome) -> None:
        entry.state = State.SETTLING
        self._settler.put(entry, outcome)
