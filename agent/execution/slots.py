"""The slots in which claimed tasks run.

A task runs under its claim's lease. Losing its partition does not end it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

from docllm.agent.execution.admission import Admission
from docllm.agent.execution.attempt_routes import AttemptRoutes
from docllm.agent.execution.attempt_runner import AttemptRunner
from docllm.agent.execution.settler import Settler
from docllm.agent.execution.start_decisions import AttemptStart, NotStarted
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.judge import Tier
from docllm.agent.judge.guard_rule import closed_text
from docllm.agent.judge.tiers import move
from docllm.agent.ports import Clock
from docllm.agent.ports.outcome import (
    NOTHING_SPENT,
    Cancelled,
    Dead,
    Failure,
    Moved,
    Outcome,
    Released,
    Snooze,
    Spent,
    Succeeded,
)
from docllm.agent.process.containment import (
    MemoryWatch,
    attempt_of,
    cancel,
    current_task,
    has_had_handler,
    is_to_end,
)
from docllm.agent.process.frames import traceback_text
from docllm.agent.reporting.telemetry import Counts
from docllm.schemas.agent_report import BlockReport, CallReport
from docllm.schemas.codes import Code
from docllm.schemas.task.failures import Disposition, ErrorClass
from docllm.schemas.task.guard import Guard
from docllm.schemas.task.joins import JoinRole
from docllm.schemas.task.result.codec import POINTER
from docllm.schemas.task.waits import WaitReason

INTERNAL_S = 60.0
CANCEL_S = 5.0
STALL_S = 5.0  # much more than the time between two ticks

Work = Callable[[], Awaitable[Outcome]]  # returns the outcome to settle

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False)
class Slots:
    """Runs claimed deliveries that may start, and hands their outcomes to the settler."""

    admission: Admission
    attempt_runner: AttemptRunner
    settler: Settler
    longest_tier: Tier
    clock: Clock
    counts: Counts
    memory: MemoryWatch
    freed: asyncio.Event
    claim_s: float

    def __post_init__(self) -> None:
        self._running: dict[Delivery, asyncio.Task[None]] = {}
        self._ahead: deque[Delivery] = deque()
        # The task of an attempt that has just ended, and the attempt with which it goes on.
        self._spare: asyncio.Task[None] | None = None
        self._next: tuple[Delivery, Work] | None = None
        self._overdue_ended_at_s = self.clock.now_s()

    @property
    def ahead(self) -> int:
        """How many deliveries are claimed ahead: they wait for a slot."""
        return len(self._ahead)

    @property
    def running(self) -> int:
        """How many attempts run."""
        return len(self._running)

    def oldest_call(self) -> CallReport | None:
        """Return the call that has run for longest, for the agent's report."""
        delivery = next(iter(self._running), None)
        if delivery is None or delivery.row is None:
            return None
        return CallReport(
            task=delivery.task_id,
            batch=delivery.row.batch,
            key=delivery.row.key_text,
            route=delivery.route,
            running_s=self.clock.now_s() - delivery.claimed_at_s,
        )

    def work_of(self, task: "asyncio.Task[Any]") -> BlockReport | None:
        """Return which task of a batch an asyncio task works for, from any thread; or None."""
        attempt = attempt_of(task)
        running = list(self._running.items())  # in one step, since the loop may change it
        row = next((delivery.row for delivery, run in running if run is attempt), None)
        if row is None:
            return None
        return BlockReport(task=row.task_id, batch=row.batch, key=row.key_text, type=row.type)

    def start(self, delivery: Delivery) -> None:
        """Run a claimed delivery, or settle it at once if it needs no run or may not start.

        An answer that belongs outside the ledger takes a slot for its write.
        """
        outcome = _without_run(delivery)
        if outcome is not None:
            if _is_unwritten(outcome):
                self._begin(delivery, partial(self._written, delivery, outcome))
            else:
                self.settler.settle(delivery, outcome)
        elif isinstance(decision := self.admission.decide(delivery), AttemptStart):
            self._begin(delivery, partial(self._attempt, delivery, decision))
        elif isinstance(decision, NotStarted):
            self.give_back(delivery)
        else:
            self._begin(delivery, partial(self._move_or_attempt, delivery, decision))

    def start_when_free(self, delivery: Delivery) -> None:
        """Start a delivery that was claimed ahead, as soon as a slot is free."""
        if self.admission.leaving or (delivery.row is not None and delivery.row.lease_losses):
            self.give_back(delivery)
            return
        delivery.state = DeliveryState.CLAIMED
        self._ahead.append(delivery)
        self._start_ahead()

    def _start_ahead(self) -> None:
        """Start deliveries that were claimed ahead; all that may have changed is decided now."""
        while self._ahead and self.admission.free > 0:
            delivery = self._ahead.popleft()
            delivery.claimed_at_s = self.clock.now_s()  # the time of its attempt begins now
            self.start(delivery)

    def give_back_ahead(self, is_over: Callable[[Delivery], bool] = lambda _: True) -> None:
        """Give back the claims of deliveries that wait for a slot and for which this is over."""
        waiting, self._ahead = self._ahead, deque()
        for delivery in waiting:
            if is_over(delivery):
                self.give_back(delivery)
            else:
                self._ahead.append(delivery)

    def move(self, delivery: Delivery) -> None:
        """Let a claimed delivery wait in the ledger, because its route stays closed.

        A delivery with a paid answer, or of a cancelled batch, needs no call and ends as usual.
        """
        if delivery.kept_answer is not None or (
            delivery.row is not None and delivery.row.cancelled
        ):
            self.start(delivery)
            return
        failure = Failure(ErrorClass.ROUTE, closed_text(delivery.route))
        outcome = move(
            failure,
            Spent(),
            delivery.task_id,
            reason=WaitReason.ROUTE,
            key=delivery.route,
            delay_s=self.longest_tier.delay_s,
        )
        self.settler.settle(delivery, outcome)

    def give_back(self, delivery: Delivery) -> None:
        """Release a claim whose attempt did not begin."""
        self.settler.settle(delivery, Released())

    def end_overdue(self) -> None:
        """End attempts whose claims are over: what they return could not be stored.

        Time limits end calls and handlers before that. This frees the slot of one that none ended.
        After the agent itself has stood still, the time limits have their turn first.
        """
        now_s, last_s = self.clock.now_s(), self._overdue_ended_at_s
        self._overdue_ended_at_s = now_s
        if now_s - last_s > STALL_S:
            return
        claimed_before_s = now_s - self.claim_s
        for delivery, run in self._running.items():  # in the order of their claims
            if delivery.claimed_at_s > claimed_before_s:
                return
            log.error(
                "the attempt at task %d has outlived its claim and is ended; this is a bug",
                delivery.task_id,
                extra={"code": Code.INTERNAL_ERROR},
            )
            cancel(run)

    async def drain(self, timeout_s: float) -> None:
        """Give back what waits for a slot, and wait for running attempts.

        After `timeout_s`, cancel the rest and release their claims. A handler that ignores its
        cancellation is left running.
        """
        self.give_back_ahead()
        if self._running and timeout_s > 0:
            await asyncio.wait(self._running.values(), timeout=timeout_s)
        unfinished = list(self._running.values())
        for attempt in unfinished:
            cancel(attempt)
        if unfinished:
            await asyncio.wait(unfinished, timeout=CANCEL_S)
        if self._running:
            log.warning(
                "%d handlers go on though they were cancelled; "
                "their tasks run again when their leases end",
                len(self._running),
                extra={"code": Code.HANDLER_GOES_ON},
            )

    def _begin(self, delivery: Delivery, work: Work) -> None:
        """Give a delivery a slot."""
        delivery.state = DeliveryState.RUNNING
        self.admission.enter(delivery)
        if self._spare is not None:
            self._running[delivery], self._spare = self._spare, None
            self._next = delivery, work
            return
        run = self._run_to_settle(delivery, work)
        self._running[delivery] = asyncio.get_running_loop().create_task(run)

    async def _run_to_settle(self, delivery: Delivery, work: Work) -> None:
        """Run an attempt and settle it, and go on with the one that takes its slot.

        That saves many attempts a task of the event loop. No attempt takes over what a handler may
        have left in the task's context.
        """
        following: tuple[Delivery, Work] | None = delivery, work
        while following is not None:
            delivery, work = following
            delivery.spent = NOTHING_SPENT
            outcome: Outcome | None = None
            try:
                outcome = await work()
            except BaseException as error:
                if is_to_end(error, current_task()):
                    raise
                outcome = Snooze(
                    Failure(ErrorClass.INTERNAL, type(error).__name__, traceback_text(error)),
                    delivery.spent,
                    INTERNAL_S,
                )
                self.memory.note(error)
                log.exception(
                    "the attempt at task %d ended in a bug",
                    delivery.task_id,
                    extra={"code": Code.INTERNAL_ERROR},
                )
            finally:
                # A cancelled run must settle too: its task is released, and its slot is free again.
                task = self._running.pop(delivery)
                self.admission.leave(delivery)
                self.settler.settle(delivery, outcome or Released(delivery.spent))
                self.freed.set()
                self._spare = task if type(outcome) is Succeeded and not has_had_handler() else None
                self._start_ahead()
                following, self._next, self._spare = self._next, None, None

    async def _move_or_attempt(self, delivery: Delivery, reason: Guard | Moved) -> Outcome:
        """Move a task that must wait; run its attempt if it may join the look of its guard."""
        if isinstance(reason, Guard):
            return await self._guarded_attempt(delivery, reason)
        await self.admission.guards.wait_to_move()
        return reason

    async def _guarded_attempt(self, delivery: Delivery, guard: Guard) -> Outcome:
        """Run the attempt of a task that a guard stops if it may join the guard's look."""
        stopped = await self.admission.guards.join_look_or_move(guard, delivery.task_id)
        if stopped is not None:
            return stopped
        decision = self.admission.decide(delivery)
        return (
            await self._attempt(delivery, decision)
            if isinstance(decision, AttemptStart)
            else Released()
        )

    async def _written(self, delivery: Delivery, outcome: Outcome) -> Outcome:
        """Write an answer that belongs outside the ledger; return the outcome to settle."""
        if not _is_unwritten(outcome) or delivery.row is None:
            return outcome
        return await self.attempt_runner.write(delivery, delivery.row, outcome)

    async def _attempt(self, delivery: Delivery, start: AttemptStart) -> Outcome:
        """Run an attempt, and write its answer if it belongs outside the ledger."""
        self.counts.attempts += 1
        if delivery.row is not None and delivery.row.lease_losses:
            self.admission.suspects.warn(delivery)
        outcome: Outcome | None = None
        routes = AttemptRoutes(admission=self.admission, delivery=delivery, start=start)
        try:
            outcome = await self.attempt_runner.run(delivery, start, routes)
        finally:
            outcome = routes.end(outcome or Released(delivery.spent))
        if type(outcome) is Succeeded:
            return await self._written(delivery, outcome) if outcome.output_uri else outcome
        if isinstance(outcome, Snooze) and outcome.failure.error_class == ErrorClass.AUTH:
            delivery.auth_failed_at_s = self.clock.now_s()
            delivery.auth_failed_on = delivery.route
        return outcome


def _is_unwritten(outcome: Outcome | None) -> TypeGuard[Succeeded]:
    """Return whether this is an answer that must be written outside the ledger first."""
    return isinstance(outcome, Succeeded) and bool(outcome.output_uri) and outcome.codec != POINTER


def _without_run(delivery: Delivery) -> Outcome | None:
    """Return the outcome of a claimed task that needs no run, or None."""
    row = delivery.row
    if row is None:
        raise AssertionError(f"task {delivery.task_id} is not claimed")
    if delivery.kept_answer is not None:
        return delivery.kept_answer
    if row.cancelled:
        return Cancelled()
    if row.expired:
        failure = Failure(ErrorClass.EXPIRED, "its deadline passed before this attempt")
        return Dead(failure, Spent(), Disposition.EXPIRED)
    if row.join_role == JoinRole.DOOMED:
        text = 'a task that it waited for is dead or was cancelled, and its on_dead_child is "die"'
        return Dead(Failure(ErrorClass.CHILD_DEAD, text), Spent())
    return None
