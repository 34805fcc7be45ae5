"""Slots over fakes, for tests of which tasks they start."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from docllm.agent.execution.admission import Admission
from docllm.agent.execution.attempt_runner import AttemptRunner
from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.agent.execution.guard_gate import GuardGate
from docllm.agent.execution.quota_gate import QuotaGate
from docllm.agent.execution.settler import Settler
from docllm.agent.execution.slots import Slots
from docllm.agent.execution.start_decisions import AttemptStart
from docllm.agent.execution.type_hours import TypeHours
from docllm.agent.execution.unknown_types import UnknownTypes
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.judge import Tier
from docllm.agent.lease import Lease
from docllm.agent.ports import Partition, Row
from docllm.agent.ports.outcome import Outcome, Succeeded
from docllm.agent.process.containment import MemoryWatch
from docllm.agent.quota.configured import ConfiguredQuotas
from docllm.agent.quota.quotas import Quotas
from docllm.agent.reporting.telemetry import Counts
from docllm.agent.routes import Router
from docllm.schemas.runtime.clock import Clock, SystemClock
from docllm.schemas.settings.config import Config
from docllm.schemas.task.guard import Guard, GuardCause
from docllm.schemas.task.record.envelope import Publication
from tests.support.doubles import stand_in
from tests.support.ledger import FakeLedger, new_row
from tests.support.routes import ROUTE

Act = Callable[[Delivery], Awaitable[Outcome]]  # what an attempt does

PARTITION = Partition("g.tasks", "id", 0, 1)
SHORTEST, LONGEST = Tier("30s", 30.0), Tier("1h", 3600.0)
RAISED = Guard(
    id=1,
    batch_id=1,
    batch="b",
    type="document",
    route=ROUTE,
    cause=GuardCause.EXHAUSTED.value,
    reason="10 of the last 12 tasks were given up on",
    raised_at=datetime(2026, 1, 31),  # noqa: DTZ001 - as it is read from the ledger
    probe_due_in_s=60.0,
    look_at=datetime(2026, 1, 31),  # noqa: DTZ001 - as it is read from the ledger
    open_age_s=None,
)


class OneLease:
    """Leases of an agent that lost none."""

    def __init__(self, lease: Lease | None = None) -> None:
        self.current = lease or Lease(1, 0.0)


@dataclass
class FakeSettler:
    """Stores the outcomes it is given."""

    outcomes: list[Outcome] = field(default_factory=list)
    queued: int = 0

    def settle(self, _delivery: Delivery, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


@dataclass
class FakeAttemptRunner:
    """Ends attempts as `act` does; records its arguments."""

    act: Act
    limits_s: list[float | None] = field(default_factory=list)
    refused_alone: list[bool] = field(default_factory=list)
    written: Outcome | None = None  # what becomes of an answer that is written

    async def write(self, _delivery: Delivery, _row: Row, answer: Succeeded) -> Outcome:
        return self.written or replace(answer, output_uri="")

    async def run(
        self, delivery: Delivery, permit: AttemptStart, _routes: object = None
    ) -> Outcome:
        self.limits_s.append(permit.limit_s)
        self.refused_alone.append(permit.refused_alone)
        return await self.act(delivery)


async def no_place(_guard_id: int, _task_id: int) -> bool:
    """Let no task join a guard's look."""
    return False


def quota_gate_of(config: Config, clock: Clock) -> QuotaGate:
    """Return a gate with the limits of these settings."""
    configured = ConfiguredQuotas(config=config, group="g")
    return QuotaGate(quotas=Quotas(configured.find), configured=configured, clock=clock)


class LookLedger(FakeLedger):
    """A ledger without tasks; `joins` decides which tasks join a guard's look."""

    def __init__(self, joins: Callable[[int, int], Awaitable[bool]]) -> None:
        super().__init__()
        self._joins = joins

    async def join_look(self, guard_id: int, task_id: int) -> bool:
        return await self._joins(guard_id, task_id)


class SlotsHarness:
    """Slots over fakes, with the routes and guards that they use.

    `join_look` decides which task joins a guard's look.
    """

    def __init__(
        self,
        router: Router,
        act: Act,
        join_look: Callable[[int, int], Awaitable[bool]] = no_place,
    ) -> None:
        self.router, self.settler, self.attempt_runner, self.counts = (
            router,
            FakeSettler(),
            FakeAttemptRunner(act),
            Counts(),
        )
        self.clock = SystemClock()
        self.unknown_types = UnknownTypes(
            knows=lambda name: name == "document",
            tiers=[SHORTEST, LONGEST],
            clock=self.clock,
        )
        self.hours = TypeHours(types={}, clock=self.clock)
        self.quotas = quota_gate_of(Config(), self.clock)
        self.guards = GuardGate(
            clock=self.clock, longest_tier=LONGEST, ledger=LookLedger(join_look)
        )

    def admission(self, suspects: CrashSuspects) -> Admission:
        """Return an admission for eight slots, under a lease that has just begun."""
        lease = Lease(1, self.clock.now_s())
        return Admission(
            slots=8,
            leases=OneLease(lease),
            routes=self.router,
            guards=self.guards,
            quotas=self.quotas,
            suspects=suspects,
            settler=stand_in(Settler, self.settler),
            unknown_types=self.unknown_types,
            hours=self.hours,
            clock=self.clock,
        )

    def slots(self) -> Slots:
        """Return slots; `slots_admission` is asked by those that were made last."""
        suspects = CrashSuspects()
        self.slots_admission = self.admission(suspects)
        return Slots(
            admission=self.slots_admission,
            attempt_runner=stand_in(AttemptRunner, self.attempt_runner),
            settler=stand_in(Settler, self.settler),
            longest_tier=LONGEST,
            clock=self.clock,
            counts=self.counts,
            memory=MemoryWatch(self.clock),
            freed=asyncio.Event(),
            claim_s=660.0,
        )

    def run(self, count: int = 1, *, cancel: bool = False) -> list[Outcome]:
        """Run so many tasks at once; return their settled outcomes."""
        asyncio.run(self._run(count, cancel=cancel))
        return self.settler.outcomes

    async def _run(self, count: int, *, cancel: bool) -> None:
        slots = self.slots()
        for number in range(count):
            slots.start(claimed(number, self.clock.now_s()))
        await asyncio.sleep(0)
        await slots.drain(0 if cancel else 5.0)


def claimed(
    task_id: int,
    now_s: float,
    *,
    batch_id: int = 1,
    lease_losses: int = 0,
    expired: bool = False,
    type_name: str = "document",
    join_role: int = 0,
) -> Delivery:
    """Return a delivery that was just claimed."""
    row = new_row(
        task_id=task_id,
        batch_id=batch_id,
        status=1,
        owner=9,
        lease_losses=lease_losses,
        expired=expired,
        type=type_name,
        batch="b",
        join_role=join_role,
    )
    delivery = Delivery(
        partition=PARTITION,
        offset=task_id,
        timestamp_ms=0,
        publication=Publication(ledger="ledger", group="g", batch="b", task_id=task_id, fence=0),
        value=b"{}",
        digest=None,
        route=ROUTE,
    )
    delivery.row, delivery.owner, delivery.lease, delivery.claimed_at_s = (
        row,
        9,
        Lease(1, now_s),
        now_s,
    )
    return delivery


def ending(outcome: Outcome) -> Act:
    """Return work that ends with this outcome."""

    async def act(_delivery: Delivery) -> Outcome:
        await asyncio.sleep(0)  # all have started when the first one ends
        return outcome

    return act


def started(harness: SlotsHarness, *deliveries: Delivery) -> list[Outcome]:
    """Start these deliveries and wait for them; return their settled outcomes."""
    asyncio.run(_start(harness.slots(), deliveries))
    return harness.settler.outcomes


async def _start(slots: Slots, deliveries: tuple[Delivery, ...]) -> None:
    for delivery in deliveries:
        slots.start(delivery)
    await asyncio.sleep(0)
    await slots.drain(5.0)
