"""Asks the ledger about deliveries, selects and claims tasks, and starts what it claimed.

The tasks of a closed route do not wait for it if a fallback of it takes calls. A stopped route
still gets a task when a probe is due: the probe shows whether the route works again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from docllm.agent.dispatch.answer_actions import AnswerActions
from docllm.agent.dispatch.quarantine_queue import QuarantineQueue
from docllm.agent.dispatch.record_finisher import RecordFinisher, Wakeups
from docllm.agent.execution.admission import Admission
from docllm.agent.execution.slots import Slots
from docllm.agent.inflight.decoder import BodyLoader
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.lease import Lease, Leases
from docllm.agent.ports import ClaimAnswer, Clock, Ledger, Row
from docllm.schemas.runtime import crash

log = logging.getLogger(__name__)

RoomOf = Callable[[str], int]

# If fewer slots than this share are free, a claim waits GATHER_S for more: a claim of one task
# costs as much as a claim of many.
GATHER_SHARE, GATHER_S = 1 / 8, 0.01
# Nothing else begins for so long after a suspect that must run alone could have begun. Running
# calls end later than the suspect's grant does, but the next grant comes sooner.
ALONE_S = 3.0
# At about so many tasks that may not leave their route, the search for others ends for this time.
MAX_STUCK = 30


class Purpose(Enum):
    """Why deliveries are claimed."""

    RUN = "run"
    RUN_SUSPECT = "run suspect"  # agents were lost over the task; it is claimed by itself
    MOVE = "move"  # to a tier, because its route stays closed


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim call: all its tasks get the same owner and live under the same lease."""

    owner: int
    lease: Lease
    began_s: float
    purpose: Purpose


class ReadySelection:
    """Takes deliveries from the ready queue, by the room on each route."""

    def __init__(self, *, table: InFlightTable, admission: Admission) -> None:
        self._table = table
        self._admission = admission
        self._diverted_first = False
        self._logged_routes: set[str] = set()

    def take(self, limit: int) -> list[Delivery]:
        """Take up to `limit` deliveries to claim; their `route` is the one to run on.

        The first call of each is reserved within the limits of its account and tenant; deliveries
        without room on their own routes stay queued. A fallback's own tasks and diverted
        tasks take turns.
        """
        selected: list[Delivery] = []
        counted: Counter[str] = Counter()

        def room(route: str) -> int:
            return max(0, self._admission.room_for(route, counted[route]))

        sources = [self._own, self._diverted]
        self._diverted_first = not self._diverted_first
        for source in reversed(sources) if self._diverted_first else sources:
            if len(selected) < limit:
                selected += source(limit - len(selected), room, counted)
        return selected

    def take_ahead(self, limit: int) -> list[Delivery]:
        """Take up to `limit` deliveries to claim before a slot is free for them.

        None is taken after a delivery in whose way is more than the slot, although its turn has
        come: it gets the next slot.
        """
        may_go_on = True

        def needs_only_slot(delivery: Delivery) -> bool:
            nonlocal may_go_on
            may_go_on = may_go_on and self._admission.needs_only_slot(delivery)
            return may_go_on

        return self._table.take_ready(limit, lambda _route: limit, needs_only_slot)

    def _own(self, limit: int, room: RoomOf, counted: Counter[str]) -> list[Delivery]:
        """Take deliveries that run on their own routes."""
        selected = self._table.take_ready(limit, room, self._admission.reserve_call)
        counted.update(delivery.route for delivery in selected)
        return selected

    def _diverted(self, limit: int, room: RoomOf, counted: Counter[str]) -> list[Delivery]:
        """Take deliveries of closed routes that may run on a fallback now."""
        selected: list[Delivery] = []
        for route in self._table.ready.routes:
            following = self._admission.fallbacks(route)
            if not following and not self._admission.tasks_wait_for(route):
                self._logged_routes.discard(route)
            most = min(
                limit - len(selected),
                self._table.ready.count(route) - room(route),  # these may be due as probes
                sum(map(room, following)) if following else 0,
            )
            if most > 0:
                selected += self._divert(route, most, room, counted)
        return selected

    def _divert(
        self, route: str, limit: int, room: RoomOf, counted: Counter[str]
    ) -> list[Delivery]:
        """Take up to `limit` deliveries that may leave their closed route.

        Those that have no fallback with room go behind their tenant's other tasks, and each has
        used up one of the tenant's turns on this route.
        """
        diverted: list[Delivery] = []
        stuck: list[Delivery] = []

        def divert_or_pass(delivery: Delivery) -> bool:
            """Give a delivery its fallback; False if one has room, but the limits do not."""
            following = self._admission.fallbacks(route, delivery)
            target = next((name for name in following if room(name) > 0), None)
            if target is None:
                stuck.append(delivery)  # taken too, so that those behind it are seen
                return True
            delivery.route = target
            if not self._admission.reserve_call(delivery):
                delivery.route = route
                return False
            counted[target] += 1
            diverted.append(delivery)
            return True

        may_find_more = True
        while may_find_more and len(stuck) < MAX_STUCK and len(diverted) < limit:
            left = limit - len(diverted)
            may_find_more = bool(self._table.take_ready_for(route, left, divert_or_pass))
        for delivery in stuck:
            self._table.queue_for_claim(delivery, was_waiting=True)
        self._admission.note_no_way_out(route, has_no_way_out=bool(stuck) and not diverted)
        for delivery in diverted:
            if not self._admission.closed(delivery.route):  # else it is a probe
                self._log_once(route, delivery.route)
        return diverted

    def _log_once(self, route: str, target: str) -> None:
        if route not in self._logged_routes:
            log.info("tasks of route %s run on %s until it takes calls again", route, target)
            self._logged_routes.add(route)


@dataclass(kw_only=True, eq=False)
class Claimer:
    """Claims tasks under this agent's lease, one claim at a time."""

    ledger: Ledger
    leases: Leases
    claim_s: float
    partitions: Partitions
    table: InFlightTable
    quarantine: QuarantineQueue
    answers: AnswerActions
    bodies: BodyLoader
    admission: Admission
    slots: Slots
    finisher: RecordFinisher
    wakeups: Wakeups
    clock: Clock
    limits: InFlightLimits

    def __post_init__(self) -> None:
        self._selection = ReadySelection(table=self.table, admission=self.admission)
        self._claiming = asyncio.Lock()
        self._gone: frozenset[int] = frozenset()
        self._alone_until_s = 0.0

    async def ask_forever(self) -> None:
        """Ask the ledger about deliveries, and quarantine rejected records, until cancelled."""
        while True:
            await self.wakeups.ask.wait()
            self.wakeups.ask.clear()
            await self.quarantine.keep()
            while deliveries := self.table.take_to_ask(self.clock.now_s(), self.limits.page):
                await self.ask(deliveries)

    async def ask(self, deliveries: Sequence[Delivery]) -> None:
        """Ask the ledger about deliveries, without a lock."""
        answers = await self.ledger.ask([delivery.claimable() for delivery in deliveries])
        fresh = {delivery.partition for delivery in deliveries}
        for delivery in deliveries:
            answer, row = answers[delivery.task_id]
            if answer is not ClaimAnswer.CLAIMABLE:
                fresh.discard(delivery.partition)
            if delivery.state is DeliveryState.ASKING:
                self.answers.apply(delivery, answer, row)
        for partition in fresh:
            self.partitions.note_not_redelivered(partition)
        self.finisher.advance()

    def ask_about_tasks_of(self, gone: frozenset[int]) -> None:
        """Ask at once about the tasks of agents that were lost or have stopped."""
        if self.table.delayed.wake(gone - self._gone, self.clock.now_s()):
            self.wakeups.set()
        self._gone = gone

    def ask_about_batches(self, batches: frozenset[str]) -> None:
        """Ask at once about the waiting tasks of cancelled batches, because they are final."""
        self.slots.give_back_ahead(lambda delivery: delivery.publication.batch in batches)
        if self.table.ask_about_batches(batches):
            self.wakeups.set()

    def ask_about_all(self) -> None:
        """Ask at once about all waiting records, because no task of the group is open.

        Records in tiers may be outdated: such a record stays there when its task is called up, and
        the agent that has the record is not always the one that runs the task.
        """
        if self.table.ask_about_all():
            self.wakeups.set()

    async def claim_forever(self) -> None:
        """Claim deliveries for free slots, and some ahead, until cancelled."""
        while True:
            await self.wakeups.claim.wait()
            if self.admission.room() < GATHER_SHARE * self.admission.slots:
                await self.clock.sleep(GATHER_S)
            self.wakeups.claim.clear()
            if suspect := self.table.take_suspect(self.admission.reserve_call_of_suspect):
                await self._claim_reserved([suspect], Purpose.RUN_SUSPECT)
            if self.table.knows_suspect:
                self.slots.give_back_ahead()
            limit = min(self.limits.page, self._room())
            deliveries = self._selection.take(limit)
            # If slots stay free, what waits has other limits.
            most = self._room_ahead() if len(deliveries) == limit else 0
            ahead = self._selection.take_ahead(min(most, self.limits.page - limit))
            if deliveries or ahead:
                await self._claim_reserved(deliveries, Purpose.RUN, ahead)

    def _room_ahead(self) -> int:
        """Return how many tasks to claim before a slot is free for them.

        Such claims begin when half of the tasks that were claimed ahead have started: a claim of
        one task costs as much as a claim of many.
        """
        ends = self.limits.ahead_s * self.admission.ends_per_s()
        most = min(self.admission.slots, int(ends))
        room = most - self.slots.ahead
        if 2 * room < most or self.table.knows_suspect:
            return 0
        return room if self.admission.may_claim_ahead(self.table.ready.routes) else 0

    async def _claim_reserved(
        self, deliveries: Sequence[Delivery], purpose: Purpose, ahead: Sequence[Delivery] = ()
    ) -> None:
        """Claim deliveries whose first calls are reserved; give unused calls back."""
        try:
            await self.claim(deliveries, purpose, ahead)
        finally:
            self.admission.release_calls(deliveries)

    def end_overdue(self) -> None:
        """End attempts whose claims are over, and waits for a slot that take too long.

        What waits for a slot is also given back if its partition was revoked.
        """
        self.slots.end_overdue()
        since_s = self.clock.now_s() - self.limits.ahead_most_s
        self.slots.give_back_ahead(
            lambda delivery: (
                delivery.claimed_at_s < since_s or delivery.partition not in self.partitions
            )
        )

    async def wait_for_claim(self) -> None:
        """Return once no claim is under way; while the agent leaves, no other follows."""
        async with self._claiming:
            return

    def _room(self) -> int:
        """Return how many tasks to claim: 0 while a suspect waits until nothing else runs."""
        lone = self.table.lone_suspects
        if any(self.admission.room_for(suspect.route) > 0 for suspect in lone):
            self._alone_until_s = self.clock.now_s() + ALONE_S
        waits = bool(lone) and self.clock.now_s() < self._alone_until_s
        return 0 if waits else self.admission.room()

    async def claim(
        self, deliveries: Sequence[Delivery], purpose: Purpose, ahead: Sequence[Delivery] = ()
    ) -> None:
        """Claim the tasks of these deliveries; start, move or give back what was claimed.

        The tasks of `ahead` start when slots are free for them.
        """
        async with self._claiming:
            lease, began_s = self.leases.current, self.clock.now_s()
            claim = Claim(lease.next_owner(), lease, began_s, purpose)
            with lease.held():
                await self._claim(deliveries, ahead, claim)
            self.finisher.advance()

    async def _claim(
        self, for_slots: Sequence[Delivery], ahead: Sequence[Delivery], claim: Claim
    ) -> None:
        deliveries = [*for_slots, *ahead]
        with self.admission.reserved(for_slots):
            answers = await self.ledger.claim(
                [delivery.claimable() for delivery in deliveries],
                claim.owner,
                self.claim_s + self.limits.ahead_most_s,
                with_suspects=claim.purpose is Purpose.RUN_SUSPECT,
            )
            crash.reach("claim.claimed")
            claimed = [
                delivery
                for delivery in deliveries
                if answers[delivery.task_id][0] is ClaimAnswer.CLAIMED
            ]
            changed = [
                delivery
                for delivery in claimed
                if (row := answers[delivery.task_id][1]) is not None and row.changed
            ]
            moving = claim.purpose is Purpose.MOVE
            rerouted = await self.bodies.fetch(claimed, moving=moving, changed=changed)
        for number, delivery in enumerate(deliveries):
            answer, row = answers[delivery.task_id]
            if answer is ClaimAnswer.CLAIMED and row is not None:
                self._start(
                    delivery,
                    row,
                    claim,
                    rerouted=delivery in rerouted,
                    ahead=number >= len(for_slots),
                )
            else:
                self.answers.apply(delivery, answer, row)

    def _start(
        self, delivery: Delivery, row: Row, claim: Claim, *, rerouted: bool, ahead: bool
    ) -> None:
        """Start, move or give back a claimed delivery.

        It is given back if it needs another route. It is also given back if its partition was
        revoked during the claim, unless it has a paid answer to settle.
        """
        delivery.row, delivery.owner = row, claim.owner
        delivery.lease, delivery.claimed_at_s = claim.lease, claim.began_s
        claim.lease.running += 1
        self.quarantine.quarantine_foreign_behind(delivery)
        revoked = delivery.partition not in self.partitions
        if rerouted or (revoked and delivery.kept_answer is None):
            self.slots.give_back(delivery)
        elif claim.purpose is Purpose.MOVE:
            self.slots.move(delivery)
        elif ahead:
            self.slots.start_when_free(delivery)
        else:
            self.slots.start(delivery)
