"""One agent from its first assignment to its last settle: start, run, drain, leave."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from docllm.agent.dispatch.claimer import Claimer
from docllm.agent.dispatch.dispatcher import Dispatcher
from docllm.agent.dispatch.ticker import Ticker
from docllm.agent.execution.admission import Admission
from docllm.agent.execution.settler import Settler
from docllm.agent.execution.slots import Slots
from docllm.agent.hooks.runner import HookRunner
from docllm.agent.intake.acceptance import Intake
from docllm.agent.maintenance.duty import DutyLoop
from docllm.agent.maintenance.group_work import GroupWork
from docllm.agent.ports import Clock, Source
from docllm.agent.process.failures import Failures
from docllm.agent.process.stop_request import StopRequest
from docllm.agent.reporting.telemetry import Counts
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.errors import DocllmError, UnreachableError
from docllm.schemas.runtime import crash
from docllm.schemas.text.wording import number_of

log = logging.getLogger(__name__)

CHECK_DONE_EVERY_S = 1.0
CANCEL_EVERY_S = 1.0
# The time of each step of a drain beside `drain_timeout_s`. Leaving takes at most LEAVE_S of the
# sources, and cancelled attempts at most CANCEL_S of the slots.
SETTLE_S, HOOKS_S, PUBLISH_S, STOP_S = 8.0, 4.0, 4.0, 4.0


@asynccontextmanager
async def ends_within(limit_s: float, problem: Callable[[], str]) -> AsyncIterator[None]:
    """Cancel the block after `limit_s` seconds, and raise UnreachableError with `problem()`."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        raise UnreachableError(problem()) from None


async def end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks until all of them have ended.

    Each task is cancelled repeatedly: a client library that is abandoning a wait may swallow a
    cancel, because it mistakes it for its own.
    """
    left = list(tasks)
    while left:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CANCEL_EVERY_S)
        left = [task for task in left if not task.done()]
    # The caller asks the tasks themselves for their results.
    await asyncio.gather(*tasks, return_exceptions=True)


class Membership(Protocol):
    """The place of this agent in its group."""

    async def leave(self) -> None:
        """Record in the ledger that this agent stopped."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Agent:
    """The parts of one agent, assembled by `wiring`."""

    dispatcher: Dispatcher
    claimer: Claimer
    ticker: Ticker
    admission: Admission
    slots: Slots
    settler: Settler
    intake: Intake
    sources: Sequence[Source]
    inbox: Source | None
    own_orders: OwnOrders
    failures: Failures
    hooks: HookRunner
    group_work: GroupWork
    duties: Sequence[DutyLoop]
    clock: Clock
    counts: Counts
    membership: Membership

    @property
    def _all_sources(self) -> Sequence[Source]:
        return [*self.sources, *([self.inbox] if self.inbox is not None else [])]

    async def run(self, stop: StopRequest, *, until_done: bool, drain_timeout_s: float) -> None:
        """Work until asked to stop, or until the work is done; then drain and leave.

        Raises UnreachableError if the database did not answer before leaving. Raises the error of a
        part that broke.
        """
        tasks = [asyncio.create_task(duty) for duty in self._all_duties()]
        for source in self.sources:
            source.start(self.dispatcher.deliver)
        if self.inbox is not None:
            self.inbox.start(self.intake.deliver)
        endings = [
            asyncio.create_task(stop.asked.wait()),
            asyncio.create_task(self.failures.wait()),
        ]
        if until_done:
            endings.append(asyncio.create_task(self._until_done()))
        try:
            ended, _ = await asyncio.wait([*tasks, *endings], return_when=asyncio.FIRST_COMPLETED)
            stop.leave()
            # Raise the error of the part that broke only after the drain: the other running calls
            # are paid for, so their outcomes must be settled.
            with (
                suppress(UnreachableError)
                if any(task in tasks for task in ended)
                else nullcontext()
            ):
                await self._drain(stop, drain_timeout_s)
            for task in ended:
                task.result()
            if self.failures.reason is not None:
                raise DocllmError(self.failures.reason)
        finally:
            await end([*tasks, *endings])
            await self._leave_group()
            self.dispatcher.log_dropped_answers()

    def _all_duties(self) -> list[Coroutine[Any, Any, None]]:
        return [
            self.claimer.ask_forever(),
            self.claimer.claim_forever(),
            self.ticker.run(),
            self.settler.run(self.dispatcher.take_verdicts),
            self.intake.run(),
            *(duty() for duty in self.duties),
        ]

    async def _drain(self, stop: StopRequest, timeout_s: float) -> None:
        """Leave the group, finish calls, settle, run hooks, publish, and record the stop."""
        until_s = self.clock.now_s() + timeout_s
        if self.slots.running and stop.asked.is_set():
            log.info(
                "draining: waiting for %s, at most %.0f s",
                number_of(self.slots.running, "call"),
                timeout_s,
            )
        self.admission.stop_starting()
        await self._leave_group()
        crash.reach("drain.group_left")
        await self._drain_slots(stop, timeout_s)
        async with ends_within(SETTLE_S, self._unsettled):
            await self.claimer.wait_for_claim()
            await self.settler.wait_until_idle()
        crash.reach("drain.settled")
        hooks_s = max(0.0, until_s - self.clock.now_s()) if self.hooks.kinds else 0.0
        async with ends_within(hooks_s + HOOKS_S, self._hooks_unwritten):
            await self.hooks.drain(hooks_s, hurry=stop.hurry.is_set)
        await self.own_orders.flush(PUBLISH_S)
        crash.reach("drain.published")
        async with ends_within(STOP_S, lambda: _silent("it still lists this agent as running")):
            await self.membership.leave()

    def _unsettled(self) -> str:
        if left := self.settler.unsettled:
            outcomes = number_of(left, "outcome")
            return _silent(f"it has not settled {outcomes}; these tasks run again")
        return _silent("a claim has no answer; its tasks run later")

    def _hooks_unwritten(self) -> str:
        ended = number_of(self.hooks.unwritten, "hook")
        return _silent(f"it has not stored the ends of {ended}; these run again")

    async def _leave_group(self) -> None:
        """Leave the group, however the run ends.

        A consumer's thread must not outlive the event loop.
        """
        await asyncio.gather(*(source.leave() for source in self._all_sources))

    async def _drain_slots(self, stop: StopRequest, timeout_s: float) -> None:
        draining = asyncio.create_task(self.slots.drain(timeout_s))
        hurry = asyncio.create_task(stop.hurry.wait())
        await asyncio.wait([draining, hurry], return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not draining.done():
            log.info(
                "hurrying: ending %s, their tasks run again", number_of(self.slots.running, "call")
            )
            draining.cancel()
            await self.slots.drain(0)

    async def _until_done(self) -> None:
        """Return once the group's work is done.

        That is the case if, in this order:

        - this agent runs no attempt, has no outcome to settle and no inbox record in hand;
        - no replay is unfinished, and every task of the group is final;
        - no publish order is left, apart from those of final tasks, which are deleted;
        - no hook runs or is due soon, or waits in this agent for its turn;
        - the agent has its partitions, and their records are read and committed to the end;
        - every task is still final: a record that was read meanwhile may have made a task.
        """
        while not await self._done():
            await self.clock.sleep(CHECK_DONE_EVERY_S)

    async def _done(self) -> bool:
        if self.slots.running or self.settler.unsettled or not self.intake.idle:
            return False
        if await self.group_work.any_open_task():
            return False
        await self.group_work.drop_final_orders()
        if await self.group_work.count_orders() or await self.hooks.busy():
            return False
        # At once, because each answer waits for a turn of its source's thread.
        if not all(await asyncio.gather(*map(_is_read, self._all_sources))):
            self.claimer.ask_about_all()
            return False
        return not await self.group_work.any_open_task()


async def _is_read(source: Source) -> bool:
    """Return whether the source has its partitions, read and committed to the end."""
    await source.commit()
    at_rest = await source.at_rest()
    return at_rest.joined and not at_rest.lag


def _silent(effect: str) -> str:
    return f"the database does not answer: {effect}"


@dataclass(slots=True, kw_only=True, eq=False)
class RepairAgent:
    """An agent that takes no tasks.

    It repairs: it declares agents lost, resets tasks, relays, sweeps and applies replays. It also
    archives and purges old batches if the settings say so.
    """

    duties: Sequence[DutyLoop]
    membership: Membership

    async def run(self, stop: StopRequest) -> None:
        """Repair until asked to stop."""
        tasks = [asyncio.create_task(duty()) for duty in self.duties]
        asked: asyncio.Task[Any] = asyncio.create_task(stop.asked.wait())
        ended, _ = await asyncio.wait([*tasks, asked], return_when=asyncio.FIRST_COMPLETED)
        stop.leave()
        await end(tasks)
        async with ends_within(STOP_S, lambda: _silent("it still lists this agent as running")):
            await self.membership.leave()
        for task in ended:
            task.result()
