"""The slots in which claimed tasks run.

A task runs under its claim's lease. Losing its partition does not end it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from agent.execution.guard_gate import GuardGate
from agent.execution.settler import Settler
from agent.execution.worker import Worker
from agent.inflight.delivery import Delivery, DeliveryState
from agent.judge import Tier
from agent.judge.guard_rule import closed_text, moved
from agent.outcome import Cancelled, Dead, Failure, Outcome, Released, Snooze, Spent
from agent.ports import Clock
from agent.process.containment import MemoryWatch, cancel, current_task, is_to_end
from agent.reporting.telemetry import Counts
from agent.routes import Router
from schemas.task.failures import Disposition, ErrorClass
from schemas.task.guard import Guard

INTERNAL_S = 60.0
CANCEL_S = 5.0

log = logging.getLogger(__name__)


class Slots:
    """Runs claimed deliveries, at most `size` at once, and hands their outcomes to the settler."""

    def __init__(
        self,
        *,
        size: int,
        worker: Worker,
        settler: Settler,
        routes: Router,
        guards: GuardGate,
        longest_tier: Tier,
        clock: Clock,
        counts: Counts,
        memory: MemoryWatch,
        freed: asyncio.Event,
    ) -> None:
        self.size = size
        self._worker = worker
        self._settler = settler
        self._routes = routes
        self._guards = guards
        self._longest_tier = longest_tier
        self._clock = clock
        self._counts = counts
        self._memory = memory
        self._freed = freed
        self._running: dict[Delivery, asyncio.Task[None]] = {}
        self._busy: Counter[str] = Counter()  # by route: tasks that run or are being claimed
        self._suspect: Delivery | None = None  # the crash suspect that runs now
        self._closed = False

    @property
    def running(self) -> int:
        """Return how many calls are in flight."""
        return len(self._running)

    def room(self) -> int:
        """Return how many more tasks may be claimed; 0 while a crash suspect runs alone."""
        if self._suspect is not None and self._suspect.alone:
            return 0
        if self._closed or not self._guards.known or self._settler.unsettled > 2 * self.size:
            return 0
        return self.size - self._busy.total()

    def room_for(self, route: str) -> int:
        """Return how many more tasks of a route may be claimed, by the rules of the route alone."""
        return self._routes.room(route, self._clock.now_s(), self._busy[route], self.size)

    def takes_suspect(self, delivery: Delivery) -> bool:
        """Return whether this crash suspect may be claimed.

        One suspect runs at a time. A suspect that must run alone waits until nothing else runs.
        """
        if self._suspect is not None or self.room() <= 0 or self.room_for(delivery.route) <= 0:
            return False
        return not (delivery.alone and self._busy)

    def closed(self, route: str) -> bool:
        """Return whether a route takes no calls but probes."""
        return self._routes.closed(route, self._clock.now_s())

    def running_routes(self) -> Collection[str]:
        """Return the routes whose tasks run or are being claimed."""
        return self._busy.keys()

    @contextmanager
    def reserved(self, entries: Collection[Delivery]) -> Iterator[None]:
        """Reserve slots for a claim that is under way."""
        # The claim may change the route of a delivery that came without its body.
        routes = [delivery.route for delivery in entries]
        self._busy.update(routes)
        try:
            yield
        finally:
            for route in routes:
                self._free(route)

    def start(self, delivery: Delivery) -> None:
        """Run a claimed delivery, or settle it at once if there is nothing to run."""
        row = delivery.row
        if row is None:
            raise AssertionError(f"task {delivery.task_id} is not claimed")
        if delivery.paid is not None:
            self._end(delivery, delivery.paid)
        elif row.cancelled:
            self._end(delivery, Cancelled())
        elif row.expired:
            self._end(
                delivery,
                Dead(
                    Failure(ErrorClass.EXPIRED, "its deadline passed before this attempt"),
                    Spent(),
                    Disposition.EXPIRED,
                ),
            )
        elif not self._may_begin(delivery) or (delivery.suspect and self._suspect is not None):
            self.give_back(delivery)
        else:
            self._run(delivery, self._guards.stops(row, delivery.route))

    def move(self, delivery: Delivery) -> None:
        """Send a claimed delivery to the longest tier, because its route stays closed.

        A delivery with a paid answer, or of a cancelled batch, needs no call and ends as usual.
        """
        if delivery.paid is not None or (delivery.row is not None and delivery.row.cancelled):
            self.start(delivery)
            return
        failure = Failure(ErrorClass.ROUTE, closed_text(delivery.route))
        self._end(delivery, moved(failure, Spent(), self._longest_tier, delivery.task_id))

    def give_back(self, delivery: Delivery) -> None:
        """Release a claim whose attempt did not begin."""
        self._end(delivery, Released())

    def close(self) -> None:
        """Start nothing more."""
        self._closed = True

    async def finish(self, timeout_s: float) -> None:
        """Wait for the running calls; after `timeout_s`, cancel the rest and release their claims.

        A handler that does not end although it was cancelled is left running.
        """
        if self._running and timeout_s > 0:
            await asyncio.wait(self._running.values(), timeout=timeout_s)
        left = list(self._running.values())
        for task in left:
            cancel(task)
        if left:
            await asyncio.wait(left, timeout=CANCEL_S)
        if self._running:
            log.warning(
                "%d handlers go on though they were cancelled; "
                "their tasks run again when their leases end",
                len(self._running),
            )

    def _run(self, delivery: Delivery, guard: Guard | None = None) -> None:
        delivery.state = DeliveryState.RUNNING
        if delivery.suspect:
            self._suspect = delivery
        self._busy[delivery.route] += 1
        task = asyncio.get_running_loop().create_task(self._work(delivery, guard))
        self._running[delivery] = task

    async def _work(self, delivery: Delivery, guard: Guard | None) -> None:
        delivery.spent, attempt = Spent(), current_task()
        outcome: Outcome | None = None
        try:
            stopped = await self._guards.moved(guard, delivery.task_id) if guard else None
            outcome = stopped or await self._attempt(delivery)
        except BaseException as error:
            if is_to_end(error, attempt):
                raise
            outcome = Snooze(
                Failure(ErrorClass.INTERNAL, type(error).__name__), delivery.spent, INTERNAL_S
            )
            self._memory.note(error)
            log.exception("the attempt at task %d ended in a bug", delivery.task_id)
        finally:
            del self._running[delivery]
            self._over(delivery)
            self._free(delivery.route)
            self._end(delivery, outcome or Released(delivery.spent))
            self._freed.set()

    async def _attempt(self, delivery: Delivery) -> Outcome:
        """Run the attempt and return its outcome.

        The claim is released if the lease was lost, or the route closed, before the attempt began.
        """
        ticket = (
            self._routes.admit(delivery.route, delivery.task_id, self._clock.now_s())
            if self._may_begin(delivery)
            else None
        )
        if ticket is None:
            return Released()
        self._counts.attempts += 1
        self._warn_of(delivery)
        outcome: Outcome | None = None
        try:
            alone = self._routes.answered_since(delivery.route, delivery.refused_s)
            outcome = await self._worker.work(delivery, ticket.limit_s, refused_alone=alone)
        finally:
            ended = outcome or Released(delivery.spent)
            outcome = self._routes.ended(ticket, ended, self._clock.now_s())
        if isinstance(outcome, Snooze) and outcome.failure.error_class == ErrorClass.AUTH:
            delivery.refused_s = self._clock.now_s()
        return outcome

    def _warn_of(self, delivery: Delivery) -> None:
        """Log which crash suspect runs, so that the log names it if it kills the process."""
        if delivery.row is None or not delivery.suspect:
            return
        where = "alone in its agent" if delivery.alone else "as the only suspect of its agent"
        told = (
            f"task {delivery.task_id} of batch {delivery.row.batch} runs {where}: "
            f"{delivery.row.lease_losses} agents were lost over it"
        )
        log.warning("%s", told)
        self._counts.say("suspect", told)

    def _over(self, delivery: Delivery) -> None:
        if self._suspect is delivery:
            self._suspect = None
            self._counts.say("suspect", "")

    def _may_begin(self, delivery: Delivery) -> bool:
        return not self._closed and delivery.leased(self._clock.now_s())

    def _free(self, route: str) -> None:
        """Free a slot. Routes come from tasks, so a route without tasks is dropped."""
        self._busy[route] -= 1
        if not self._busy[route]:
            del self._busy[route]

    def _end(self, delivery: Delivery, outcome: Outcome) -> None:
        delivery.state = DeliveryState.SETTLING
        self._settler.settle(delivery, outcome)
