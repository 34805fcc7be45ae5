"""The main loop: asks about records, claims and starts them, and finishes them when settled.

All of it runs in the event loop's thread. Only `done`, `stale`, quarantine or an accepted settle
finishes a record and lets its partition's watermark move.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from agent.dispatch.backpressure import Backpressure
from agent.dispatch.body_loader import BodyLoader
from agent.dispatch.head_of_line import HeadOfLine
from agent.dispatch.quarantine_queue import QuarantineQueue
from agent.dispatch.route_parking import RouteParking
from agent.execution.publishing import Publishing
from agent.execution.slots import Slots
from agent.inflight.decoder import RecordDecoder
from agent.inflight.delivery import Delivery, DeliveryState
from agent.inflight.limits import Limits
from agent.inflight.partitions import Partitions
from agent.inflight.table import InFlightTable
from agent.lease import OWNER_BITS, Lease
from agent.outcome import Outcome, Released, Snooze, Succeeded
from agent.ports import (
    Answer,
    Assigned,
    Clock,
    Event,
    Ledger,
    Record,
    Recreated,
    RejectedRecord,
    Revoked,
    Row,
    SourceFailed,
    Verdict,
)
from agent.process.failures import Failures
from agent.reporting.telemetry import Counts
from schemas.runtime import crash

log = logging.getLogger(__name__)

TICK_S, RETRY_S = 0.25, 15.0
AGAIN_AT_ONCE = 2
# If a smaller share of the slots is free, a claim waits GATHER_S for more free slots, because it
# costs as much for one task as for many.
GATHER_SHARE, GATHER_S = (
    1 / 8,
    0.01,
)


class Dispatcher:
    """One agent's work on its partitions."""

    def __init__(
        self,
        *,
        partitions: Partitions,
        arrivals: RecordDecoder,
        ledger: Ledger,
        slots: Slots,
        clock: Clock,
        counts: Counts,
        lease: Callable[[], Lease],
        deadline_s: float,
        main_topic: str,
        publishing: Publishing,
        lost_records: asyncio.Event,
        failures: Failures,
        limits: Limits,
    ) -> None:
        self._partitions = partitions
        self._arrivals = arrivals
        self._ledger = ledger
        self._slots = slots
        self._clock = clock
        self._counts = counts
        self._lease = lease
        self._deadline_s = deadline_s
        self._lost_records = lost_records
        self._failures = failures
        self._limits = limits
        self._entries = entries = InFlightTable(limits=limits)
        self._parking = RouteParking(
            entries=entries, closed=slots.closed, running=slots.running_routes, limits=limits
        )
        self._aside = QuarantineQueue(
            ledger=ledger,
            partitions=partitions,
            entries=entries,
            counts=counts,
            publishing=publishing,
            limits=limits,
        )
        self._relief = HeadOfLine(
            ledger=ledger,
            partitions=partitions,
            entries=entries,
            publishing=publishing,
            limits=limits,
        )
        self._bodies = BodyLoader(ledger=ledger, entries=entries, arrivals=arrivals)
        self._pressure = Backpressure(
            entries=entries,
            partitions=partitions,
            aside=self._aside,
            slots=slots.size,
            main_topic=main_topic,
            limits=limits,
        )
        self._gone: frozenset[int] = frozenset()
        self._wake_ask, self._wake_claim = asyncio.Event(), asyncio.Event()
        self._claiming = asyncio.Lock()

    # ---- events of the sources

    def deliver(self, event: Event) -> None:
        """Handle an event of a source."""
        match event:
            case list():
                for record in event:
                    self._arrive(record)
                self._pressure.look()
            case Assigned(partitions):
                self._partitions.assign(partitions)
                self._pressure.look()
            case Revoked(partitions):
                self._drop(self._partitions.revoke(partitions))
            case Recreated(topic, known):
                self._counts.topic(topic, known=known)
                if known:
                    self._lost_records.set()
            case SourceFailed():
                self._source_failed(event)
        self.wake()

    def _source_failed(self, failed: SourceFailed) -> None:
        log.warning("%s", failed.reason)
        if failed.rewound:
            self._lost_records.set()
        if failed.fatal:
            self._failures.report(failed.reason)

    def _arrive(self, record: Record) -> None:
        if not self._partitions.begin(record.partition, record.offset):
            return
        read = self._arrivals.read(record)
        if isinstance(read, RejectedRecord):
            self._aside.put(read, record)
        elif not self._aside.quarantine_if_foreign(read, record):
            self._partitions.keep(read)
            self._entries.arrive(
                read,
                self._clock.now_s(),
                redelivered=self._partitions.redelivered(record.partition),
            )

    def _drop(self, entries: Iterable[Delivery]) -> None:
        """Forget the deliveries of a revoked partition.

        Claimed deliveries continue under their leases; only their offsets no longer count.
        """
        for entry in [
            one
            for one in entries
            if one.state
            not in {DeliveryState.CLAIMING, DeliveryState.RUNNING, DeliveryState.SETTLING}
        ]:
            self._entries.end(entry)
        self._entries.forget_gone()

    # ---- questions and claims

    async def ask_forever(self) -> None:
        """Ask the ledger about deliveries, and quarantine rejected records, until cancelled."""
        while True:
            await self._wake_ask.wait()
            self._wake_ask.clear()
            await self._aside.keep()
            while batch := self._entries.take_to_ask(self._clock.now_s(), self._limits.page):
                await self._ask(batch)

    async def _ask(self, batch: Sequence[Delivery]) -> None:
        answers = await self._ledger.ask([entry.claimable() for entry in batch])
        fresh = {entry.partition for entry in batch}
        for entry in batch:
            said, row = answers[entry.task_id]
            if said is not Answer.CLAIMABLE:
                fresh.discard(entry.partition)
            if entry.state is DeliveryState.ASKING:
                self._answered(entry, said, row)
        for partition in fresh:
            self._partitions.fresh(partition)
        self._after_answers()

    async def claim_forever(self) -> None:
        """Claim as many deliveries as there are free slots, until cancelled."""
        while True:
            await self._wake_claim.wait()
            if self._slots.room() < GATHER_SHARE * self._slots.size:
                await self._clock.sleep(GATHER_S)
            self._wake_claim.clear()
            if suspect := self._entries.take_suspect(self._takes):
                await self._claim([suspect], self._slots.start, suspects=True)
            if batch := self._entries.take_ready(
                min(self._limits.page, self._room()), self._slots.room_for
            ):
                await self._claim(batch, self._slots.start)

    async def no_claim(self) -> None:
        """Return once no claim is under way; if the slots are closed, no other claim follows."""
        async with self._claiming:
            return

    def _room(self) -> int:
        waits = self._entries.any_suspect(
            lambda one: one.alone and self._slots.room_for(one.route) > 0
        )
        return self._slots.room() if self._lease().fresh(self._clock.now_s()) and not waits else 0

    def _takes(self, suspect: Delivery) -> bool:
        """Return whether a crash suspect may be claimed now.

        A suspect that must run alone waits until nothing else is claimed under the lease. If it
        killed the agent, the other tasks would be lost with it.
        """
        lease = self._lease()
        return (
            lease.fresh(self._clock.now_s())
            and self._slots.takes_suspect(suspect)
            and not (suspect.alone and lease.running)
        )

    async def _claim(
        self,
        batch: Sequence[Delivery],
        begin: Callable[[Delivery], None],
        *,
        suspects: bool = False,
    ) -> None:
        async with self._claiming:
            lease, began_s = self._lease(), self._clock.now_s()
            owner = lease.next_owner()
            lease.running += 1  # the lease must not look idle while a claim is under way
            with self._slots.reserved(batch):
                answers = await self._ledger.claim(
                    [entry.claimable() for entry in batch],
                    owner,
                    self._deadline_s,
                    suspects=suspects,
                )
                crash.reach("claim.claimed")
                claimed = (entry for entry in batch if answers[entry.task_id][0] is Answer.CLAIMED)
                astray = await self._bodies.fetch(claimed, moving=begin == self._slots.move)
            for entry in batch:
                said, row = answers[entry.task_id]
                if said is Answer.CLAIMED and row is not None:
                    self._claimed(
                        entry,
                        row,
                        owner,
                        lease,
                        began_s,
                        self._slots.give_back if entry in astray else begin,
                    )
                else:
                    self._answered(entry, said, row)
            lease.running -= 1
            self._after_answers()

    def _claimed(
        self,
        entry: Delivery,
        row: Row,
        owner: int,
        lease: Lease,
        began_s: float,
        begin: Callable[[Delivery], None],
    ) -> None:
        entry.row, entry.owner, entry.lease, entry.claimed_s = row, owner, lease, began_s
        lease.running += 1
        self._aside.quarantine_foreign_behind(entry)
        if entry.partition in self._partitions:
            begin(entry)
        else:
            self._slots.give_back(entry)

    def _answered(self, entry: Delivery, said: Answer, row: Row | None) -> None:
        entry.row = row
        now_s = self._clock.now_s()
        if row is not None and said is not Answer.CONFLICT:
            self._aside.quarantine_foreign_behind(entry)
        if entry.partition not in self._partitions:
            self._entries.end(entry)
        elif said in {Answer.DONE, Answer.STALE}:
            # The row of a DONE record is final, so copies up to its fence are done too. The row of
            # a STALE record has moved on, so only copies below its fence are stale too.
            self._finish(entry, -1 if row is None else row.fence - (said is Answer.STALE))
        elif said is Answer.CLAIMABLE and row is not None:
            # A delivery that was delayed, is tried again, or was left behind by a dead agent does
            # not queue behind newer records.
            self._entries.ready(
                entry, back=entry.value is None or bool(row.lease_losses) or bool(row.attempt)
            )
        elif said is Answer.HELD and row is not None:
            self._entries.hold_for(entry, row.owner >> OWNER_BITS, now_s)
        elif said is Answer.EARLY and row is not None:
            self._entries.hold(entry, now_s + row.due_in_s)
        elif said is Answer.AGAIN:
            self._again(entry, now_s)
        else:
            self._aside.quarantine_unknown(entry, said, now_s)

    def _again(self, entry: Delivery, now_s: float) -> None:
        """Claim once more: the task was released between the two statements of the claim.

        The first AGAIN_AT_ONCE times the delivery is ready at once, later after a growing delay.
        """
        entry.asks += 1
        if entry.asks <= AGAIN_AT_ONCE:
            self._entries.ready(entry)
        else:
            self._entries.hold(entry, now_s + min(RETRY_S, 2.0 ** (entry.asks - AGAIN_AT_ONCE)))

    def _after_answers(self) -> None:
        self._partitions.flush()
        self._pressure.look()
        self.wake()

    # ---- after the settle

    def settled(self, group: Iterable[tuple[Delivery, Outcome, Verdict]]) -> None:
        """Take the ledger's verdicts about a group of outcomes; only now may offsets move."""
        for entry, outcome, verdict in group:
            if entry.lease is not None:
                entry.lease.running -= 1
            entry.owner, entry.lease = 0, None
            self._counts.note(outcome, verdict, self._clock.now_s())
            self._settled(entry, outcome, verdict)
        self._after_answers()

    def _settled(self, entry: Delivery, outcome: Outcome, verdict: Verdict) -> None:
        if entry.partition not in self._partitions:
            self._entries.end(entry)
        elif verdict is Verdict.FENCED:
            self._fenced(entry, outcome)
        elif verdict is Verdict.GIVEN_UP or (isinstance(outcome, Released) and entry.suspect):
            # The delay depends on the task's id, so that not all deliveries come back at once.
            self._entries.hold(entry, self._clock.now_s() + 1 + entry.task_id % RETRY_S)
        elif isinstance(outcome, Snooze):
            entry.snoozes += 1
            self._entries.hold(entry, self._clock.now_s() + outcome.delay_s)
        elif isinstance(outcome, Released) or verdict is Verdict.REOPENED:
            self._entries.ask(entry)
        else:
            self._finish(entry, -1 if entry.row is None else entry.row.fence)

    def _fenced(self, entry: Delivery, outcome: Outcome) -> None:
        """Keep a paid answer, and ask about the record again: the claim is no longer ours."""
        if isinstance(outcome, Succeeded):
            entry.paid = outcome
            self._entries.keep_paid(entry)
        self._entries.ask(entry)

    def _finish(self, entry: Delivery, past: int) -> None:
        """Finish a record and its copies up to fence `past`; its result holds for them too.

        `past` comes from the ledger's row, never from a header.
        """
        for one in (*self._entries.take_copies(entry, past), entry):
            self._partitions.finish(one.partition, one.offset)
            self._entries.end(one)

    # ---- time

    async def tick_forever(self) -> None:
        """Each tick, do the work that is due by time alone, until cancelled.

        That is: parking routes, pausing topics, head-of-line relief, and moving tasks to a tier.
        """
        while True:
            await self._clock.sleep(TICK_S)
            self._parking.look(self._clock.now_s(), full=self._pressure.full)
            self._pressure.look()
            self.wake()
            await self._relief.relieve(self._clock.now_s())
            await self._move_on()

    async def _move_on(self) -> None:
        """Send some tasks of a route that stays closed to a tier, so that others can be read."""
        stuck = {
            entry.route
            for entry in self._partitions.blocking(self._limits.stuck_share)
            if entry.state is DeliveryState.READY
        }
        for route in self._parking.routes_to_move(self._clock.now_s(), stuck):
            if self._lease().fresh(self._clock.now_s()) and (
                batch := self._entries.take_ready_for(route, self._limits.move_page)
            ):
                await self._claim(batch, self._slots.move)

    def finished(self) -> dict[tuple[str, int], int]:
        """Return the watermarks of this agent's partitions."""
        return self._partitions.marked()

    def agents_gone(self, gone: frozenset[int]) -> None:
        """Ask at once about the tasks of agents that were lost or have stopped."""
        if self._entries.wake(gone - self._gone, self._clock.now_s()):
            self.wake()
        self._gone = gone

    def wake(self) -> None:
        """Make the loops look again for deliveries to ask about or to claim."""
        self._wake_ask.set()
        self._wake_claim.set()
