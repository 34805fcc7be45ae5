"""The parts of one agent that decide which call begins, in virtual time and without an event loop.

Tested by tests/unit/agent/dispatch/test_waiting_calls_starvation.py.
"""

import random
from collections import deque
from collections.abc import Coroutine, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from types import coroutine
from typing import Any

from docllm.agent.dispatch.answer_actions import AnswerActions
from docllm.agent.dispatch.claimer import Claimer
from docllm.agent.dispatch.quarantine_queue import QuarantineQueue
from docllm.agent.dispatch.record_finisher import RecordFinisher, Wakeups
from docllm.agent.dispatch.waiting_calls import WaitingCalls
from docllm.agent.execution.admission import Admission
from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.agent.execution.guard_gate import GuardGate
from docllm.agent.execution.settler import Settler
from docllm.agent.execution.slots import Slots
from docllm.agent.execution.start_decisions import AttemptStart
from docllm.agent.execution.type_hours import TypeHours
from docllm.agent.execution.unknown_types import UnknownTypes
from docllm.agent.handlers.calls.permits import CallEnd
from docllm.agent.inflight.decoder import BodyLoader
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.lease import Lease
from docllm.agent.ports import Claimable, ClaimAnswer
from docllm.agent.quota.estimate import CallSize
from docllm.agent.quota.share import ShareGrantStore
from docllm.agent.quota.sync import EXCHANGE_EVERY_S, QuotaSync
from docllm.agent.routes import Router
from docllm.agent.routes.evidence import by_outcome
from docllm.schemas.settings.config import Config
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.record.lanes import Lane
from tests.support.doubles import double_of, stand_in
from tests.support.ledger import FakeLedger, new_row
from tests.support.memory_quota import MemoryQuotaServer
from tests.support.routes import GOOD, failed
from tests.support.slots import LONGEST, PARTITION, SHORTEST, FakeSettler, OneLease, quota_gate_of

STEP_S = 0.1
LOST_SHARE = 0.05  # of a ready task in a second


@coroutine
def _step() -> Generator[None]:
    """Wait until the agent's next step."""
    yield


class SteppedClock:
    """A clock that moves at each step of the agent."""

    at_s = 1000.0

    def now_s(self) -> float:
        return self.at_s

    def utc_s(self) -> float:
        return self.at_s

    async def sleep(self, delay_s: float) -> None:
        until_s = self.at_s + delay_s - STEP_S / 2
        while self.at_s < until_s:
            await _step()


class SteppedEvent:
    """An event that is set at each step, as if something had always happened."""

    async def wait(self) -> None:
        await _step()

    def clear(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class TaskKind:
    """Tasks that are alike. So many of them wait at all times; suspects come one by one."""

    route: str
    tenant: str = "default"
    lane: Lane = Lane.NORMAL
    type: str = "document"
    was_waiting: bool = False
    tokens: int = 1
    calls: int = 1
    lasts_s: float = 0.5
    backlog: int = 3
    lease_losses: int = 0
    rest_s: float = 0.0  # between the end of one and the arrival of the next


@dataclass(frozen=True)
class RouteOutage:
    """A time in which a route does not answer; `after_s` since the agent began."""

    route: str
    after_s: float
    lasts_s: float


class _CrowdedSlots:
    """The slots of a crowded agent, and what is claimed ahead for them."""

    def __init__(self, agent: "CrowdedAgent") -> None:
        self._waiting = deque[Delivery]()
        self.most = 0
        self.start, self.give_back, self._admission = agent.start, agent.give_back, agent.admission

    @property
    def ahead(self) -> int:
        self.most = max(self.most, len(self._waiting))
        return len(self._waiting)

    def start_when_free(self, delivery: Delivery) -> None:
        delivery.state = DeliveryState.CLAIMED
        self._waiting.append(delivery)
        self._start_ahead()

    def _start_ahead(self) -> None:
        while self._waiting and self._admission.free > 0:
            self.start(self._waiting.popleft())

    def give_back_ahead(self) -> None:
        while self._waiting:
            self.give_back(self._waiting.popleft())


class CrowdedAgent:
    """One agent with endless tasks. `step` lets time pass.

    `begun` is how many tasks of each kind have begun.
    """

    def __init__(
        self, *, config: Config, kinds: Sequence[TaskKind], outages: Sequence[RouteOutage] = ()
    ) -> None:
        self.config, self.kinds = config, kinds
        self.clock = SteppedClock()
        self._lease = Lease(1, self.clock.now_s())
        self._router = Router(config=config, group="g", jitter=lambda: 0.5)
        self.gate = quota_gate_of(config, self.clock)
        self.begun = dict.fromkeys(kinds, 0)
        self.running: set[Delivery] = set()
        self._outages = [(outage, self.clock.now_s() + outage.after_s) for outage in outages]
        self._down: set[str] = set()
        self._since_s = dict.fromkeys(kinds, self.clock.now_s())
        self._calls_since_s: dict[Delivery, float] = {}
        self._kind_of: dict[Delivery, TaskKind] = {}
        self._numbers = count(1)
        self._rng = random.Random(0)  # noqa: S311 - a test's own
        self._attempts: list[Coroutine[Any, Any, None]] = []
        self._make_parts()
        self._store = MemoryQuotaServer(self.clock.now_s).store("me")
        self._sync = QuotaSync(
            quotas=self.gate.quotas,
            store=self._store,
            share=ShareGrantStore(partitions=lambda: 1.0, clock=self.clock),
            clock=self.clock,
            jitter=self._rng.random,
            granted=lambda: None,
            update_waiting=self._waiting_calls.update,
        )
        for kind in kinds:
            for _ in range(1 if kind.lease_losses else kind.backlog):
                self._arrive(kind)
        self._exchanges, self._claims = self._exchange(), self._claimer.claim_forever()

    def _make_parts(self) -> None:
        hours = TypeHours(types=self.config.types, clock=self.clock)
        guards = GuardGate(clock=self.clock, longest_tier=LONGEST, ledger=FakeLedger())
        guards.replace([])
        suspects = CrashSuspects()
        self.admission = Admission(
            slots=self.config.agent.slots,
            leases=OneLease(self._lease),
            routes=self._router,
            guards=guards,
            quotas=self.gate,
            suspects=suspects,
            settler=stand_in(Settler, FakeSettler()),
            unknown_types=UnknownTypes(
                knows=lambda _name: True,
                tiers=[SHORTEST, LONGEST],
                clock=self.clock,
            ),
            hours=hours,
            clock=self.clock,
        )
        self._table = InFlightTable(
            limits=InFlightLimits(),
            weight_of=lambda tenant: self.config.tenant(tenant).weight,
            has_own_queue=lambda name: self.config.type_settings(name).is_limited,
        )
        self._waiting_calls = WaitingCalls(
            table=self._table, admission=self.admission, quotas=self.gate
        )
        ledger = FakeLedger()
        ledger.claim = self._claim  # type: ignore[method-assign,assignment]
        self._slots = _CrowdedSlots(self)
        self._claimer = Claimer(
            ledger=ledger,
            leases=OneLease(self._lease),
            claim_s=30.0,
            partitions=stand_in(Partitions, {PARTITION}),
            table=self._table,
            quarantine=double_of(QuarantineQueue, quarantine_foreign_behind=lambda _delivery: None),
            answers=double_of(AnswerActions),
            bodies=double_of(BodyLoader, fetch=self._fetch),
            admission=self.admission,
            slots=stand_in(Slots, self._slots),
            finisher=double_of(RecordFinisher, advance=lambda: None),
            wakeups=Wakeups(claim=SteppedEvent()),  # type: ignore[arg-type]
            clock=self.clock,
            limits=InFlightLimits(),
        )

    # ---- what happens to a task

    def _arrive(self, kind: TaskKind) -> Delivery:
        """Add a ready task."""
        number = next(self._numbers)
        plan = self._router.naming.plan_of_route(kind.route)
        delivery = Delivery(
            partition=PARTITION,
            offset=number,
            timestamp_ms=0,
            publication=Publication(ledger="l", group="g", batch="b", task_id=number, fence=0),
            value=b"{}",
            digest=b"d" * 16,
            route=plan.first,
            plan=plan,
            tenant=kind.tenant,
            size=CallSize(task_type=kind.type, input_bytes=4 * kind.tokens, most_out=1),
        )
        delivery.row = new_row(
            task_id=number,
            type=kind.type,
            tenant=kind.tenant,
            lane=kind.lane,
            lease_losses=kind.lease_losses,
        )
        self._kind_of[delivery] = kind
        self._table.queue_for_claim(delivery, was_waiting=kind.was_waiting)
        return delivery

    async def _claim(
        self, records: Sequence[Claimable], *_args: object, **_kwargs: object
    ) -> object:
        rows = {delivery.task_id: delivery.row for delivery in self._kind_of}
        ids = [record.publication.task_id for record in records]
        return {number: (ClaimAnswer.CLAIMED, rows[number]) for number in ids}

    async def _fetch(
        self, _claimed: object, *, moving: bool, changed: Sequence[Delivery]
    ) -> set[Delivery]:
        del moving
        return set()

    def start(self, delivery: Delivery) -> None:
        """Start a claimed task, or give it back."""
        decision = self.admission.decide(delivery)
        if not isinstance(decision, AttemptStart):
            self.give_back(delivery)
            return
        delivery.state = DeliveryState.RUNNING
        self.admission.enter(delivery)
        self.running.add(delivery)
        kind = self._kind_of[delivery]
        self._since_s[kind] = inf if kind.rest_s else self.clock.now_s()
        self.begun[kind] += 1
        attempt = self._attempt(delivery, decision)
        if _goes_on(attempt):
            self._attempts.append(attempt)

    def give_back(self, delivery: Delivery) -> None:
        """Let a claimed task be ready again."""
        self._lease.running -= 1
        self._table.queue_for_claim(delivery, was_waiting=True)

    async def _attempt(self, delivery: Delivery, permit: AttemptStart) -> None:
        kind, route = self._kind_of[delivery], delivery.route
        for _ in range(kind.calls):
            self._calls_since_s[delivery] = self.clock.now_s()
            call = await permit.call_permits.acquire(4 * kind.tokens, 1, inf)
            assert call is not None
            del self._calls_since_s[delivery]
            await self.clock.sleep(kind.lasts_s * (0.8 + 0.4 * self._rng.random()))
            permit.call_permits.release(call, CallEnd())
            await _step()  # as a handler that reads the answer
            if route in self._down:
                break
        self.running.discard(delivery)
        is_down = route in self._down
        self.admission.end(permit, failed() if is_down else GOOD)
        self.admission.leave(delivery)
        self._lease.running -= 1
        self._slots._start_ahead()
        if is_down:
            self._table.queue_for_claim(delivery, was_waiting=True)
            return
        del self._kind_of[delivery]
        self._table.remove(delivery)
        await self.clock.sleep(kind.rest_s)
        self._since_s[kind] = min(self._since_s[kind], self.clock.now_s())
        self._arrive(kind)

    # ---- time

    async def _exchange(self) -> None:
        """Exchange with the grant store, as `QuotaSync.run` does."""
        while True:
            await self._sync.sync(self._store)
            await self.clock.sleep(EXCHANGE_EVERY_S * (0.8 + 0.4 * self._rng.random()))

    def step(self) -> None:
        """Let a step of time pass."""
        self.clock.at_s += STEP_S
        now_s = self._lease.beaten_at_s = self.clock.now_s()
        self._down = {
            outage.route for outage, at_s in self._outages if at_s <= now_s < at_s + outage.lasts_s
        }
        for route in self._router:
            if route.name in self._down and not route.stopped:
                route.stop(now_s, "SERVER: 503: away", parked=False)
        for permit in self._router.prompts(now_s):
            evidence = by_outcome(failed() if permit.route in self._down else GOOD)
            self._router.answered(permit, evidence, now_s)
        attempts, self._attempts = self._attempts, []
        self._attempts += [attempt for attempt in attempts if _goes_on(attempt)]
        for loop in (self._claims, self._exchanges, self._claims):
            _goes_on(loop)
        if self._rng.random() < LOST_SHARE * STEP_S:
            self._lose_one()

    def _lose_one(self) -> None:
        """Let a ready task end elsewhere; another one of its kind takes its place."""
        ready = [each for each in self._kind_of if each.state is DeliveryState.READY]
        if ready:
            delivery = self._rng.choice(ready)
            self._table.remove(delivery)
            self._arrive(self._kind_of.pop(delivery))

    @property
    def most_ahead(self) -> int:
        """How many tasks have waited for a slot at once, claimed already."""
        return self._slots.most

    def close(self) -> None:
        """Drop what still runs."""
        for work in (*self._attempts, self._claims, self._exchanges):
            work.close()

    # ---- what a test sees

    def waiting_since(self) -> Iterator[tuple[TaskKind, float]]:
        """Yield since when a kind waits for its next task to begin, and calls for their permit."""
        yield from self._since_s.items()
        for delivery, since_s in self._calls_since_s.items():
            yield self._kind_of[delivery], since_s

    def left_behind(self) -> TaskKind | None:
        """Return a kind whose next task may begin by the grants in hand, but does not."""
        if self._claimer._room() <= 0:
            return None
        firsts = [
            turns._first(tenant)
            for routes in self._table.ready._lanes.values()
            for turns in routes.values()
            for tenant in turns._queues
        ]
        for first in firsts:
            if first is not None and self._may_begin(first):
                return self._kind_of[first]
        return None

    def _may_begin(self, delivery: Delivery) -> bool:
        has_room = self.admission.room_for(delivery.route) > 0
        return has_room and self.admission.reserve_call(delivery)


def _goes_on(work: Coroutine[Any, Any, None]) -> bool:
    try:
        work.send(None)
    except StopIteration:
        return False
    return True
