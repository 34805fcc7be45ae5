"""Builds the parts through which a record passes, from the ports that they use.

Tested by tests/unit/agent/dispatch/test_dispatcher.py and tests/simulation/test_simulation.py.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.dispatch.answers import AnswerHandler
from agent.dispatch.backpressure import Backpressure
from agent.dispatch.body_loader import BodyLoader
from agent.dispatch.claimer import Claimer
from agent.dispatch.dispatcher import Dispatcher
from agent.dispatch.head_of_line import HeadOfLine
from agent.dispatch.quarantine_queue import QuarantineQueue
from agent.dispatch.records import Records, Wakeups
from agent.dispatch.route_shelving import RouteShelving
from agent.dispatch.ticker import Ticker
from agent.execution.admission import Admission
from agent.execution.attempt_traces import AttemptTraces
from agent.execution.crash_suspects import CrashSuspects
from agent.execution.guard_gate import GuardGate
from agent.execution.output_writer import Outputs
from agent.execution.publishing import Publishing
from agent.execution.quota_gate import QuotaGate
from agent.execution.resource_locks import ResourceLocks
from agent.execution.settler import Settler
from agent.execution.slots import Slots
from agent.execution.type_limits import TypeLimits
from agent.execution.unknown_types import UnknownTypes
from agent.execution.worker import Worker
from agent.handlers import Handlers
from agent.inflight.decoder import RecordDecoder
from agent.inflight.limits import Limits
from agent.inflight.partitions import Partitions
from agent.inflight.table import InFlightTable
from agent.judge import Tier
from agent.lease import Leases
from agent.ports import Clock, Ledger, Letters
from agent.process.containment import MemoryWatch
from agent.process.failures import Failures
from agent.reporting.telemetry import Counts
from agent.routes import Router
from schemas.task.lanes import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """The parts that are made first, because several others use them."""

    ledger: Ledger
    letters: Letters
    leases: Leases
    publishing: Publishing
    wakeups: Wakeups
    lost_records: asyncio.Event
    failures: Failures
    memory: MemoryWatch
    clock: Clock
    counts: Counts
    limits: Limits
    longest_tier: Tier
    deadline_s: float
    traces: AttemptTraces | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The parts that run and settle claimed tasks."""

    admission: Admission
    slots: Slots
    settler: Settler


def execution(
    common: Common,
    *,
    size: int,
    routes: Router,
    guards: GuardGate,
    quotas: QuotaGate,
    handlers: Handlers,
    locks: ResourceLocks,
    outputs: Outputs,
    unknown_types: UnknownTypes,
    types: TypeLimits,
    group_size: int,
    reply_limit_bytes: int,
) -> Execution:
    """Build the parts that run and settle claimed tasks, in `size` slots."""
    clock = common.clock
    settler = Settler(
        ledger=common.ledger,
        group_size=group_size,
        group_bytes=common.limits.group_bytes,
        reply_limit_bytes=reply_limit_bytes,
        clock=clock,
        publishing=common.publishing,
    )
    suspects = CrashSuspects()
    admission = Admission(
        slots=size,
        leases=common.leases,
        routes=routes,
        guards=guards,
        quotas=quotas,
        suspects=suspects,
        settler=settler,
        unknown_types=unknown_types,
        types=types,
        clock=clock,
    )
    slots = Slots(
        admission=admission,
        guards=guards,
        suspects=suspects,
        worker=Worker(
            handlers=handlers,
            locks=locks,
            outputs=outputs,
            clock=clock,
            deadline_s=common.deadline_s,
            traces=common.traces,
        ),
        settler=settler,
        longest_tier=common.longest_tier,
        unknown_types=unknown_types,
        types=types,
        clock=clock,
        counts=common.counts,
        memory=common.memory,
        freed=common.wakeups.claim,
    )
    return Execution(admission=admission, slots=slots, settler=settler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """The parts that decide about records."""

    partitions: Partitions
    table: InFlightTable
    quarantine: QuarantineQueue
    answers: AnswerHandler
    claimer: Claimer
    dispatcher: Dispatcher
    ticker: Ticker


def dispatch(
    common: Common,
    *,
    partitions: Partitions,
    lanes: Mapping[str, Lane],
    weight_of: Callable[[str], float],
    is_apart: Callable[[str], bool],
    decoder: RecordDecoder,
    admission: Admission,
    slots: Slots,
) -> Dispatch:
    """Build the parts that decide about records."""
    ledger, publishing, leases = common.ledger, common.publishing, common.leases
    wakeups, clock, limits = common.wakeups, common.clock, common.limits
    table = InFlightTable(limits=limits, lanes=lanes, weight_of=weight_of, is_apart=is_apart)
    quarantine = QuarantineQueue(
        ledger=ledger,
        letters=common.letters,
        partitions=partitions,
        table=table,
        counts=common.counts,
        publishing=publishing,
        limits=limits,
    )
    backpressure = Backpressure(
        table=table,
        partitions=partitions,
        quarantine=quarantine,
        slots=admission.slots,
        lanes=lanes,
        limits=limits,
    )
    records = Records(
        partitions=partitions, table=table, backpressure=backpressure, wakeups=wakeups
    )
    answers = AnswerHandler(
        partitions=partitions, table=table, quarantine=quarantine, records=records, clock=clock
    )
    claimer = Claimer(
        ledger=ledger,
        leases=leases,
        deadline_s=common.deadline_s,
        partitions=partitions,
        table=table,
        quarantine=quarantine,
        answers=answers,
        bodies=BodyLoader(ledger=ledger, table=table, decoder=decoder),
        admission=admission,
        slots=slots,
        records=records,
        wakeups=wakeups,
        clock=clock,
        limits=limits,
    )
    ticker = Ticker(
        shelving=RouteShelving(table=table, admission=admission, limits=limits),
        backpressure=backpressure,
        relief=HeadOfLine(
            ledger=ledger, partitions=partitions, table=table, publishing=publishing, limits=limits
        ),
        claimer=claimer,
        partitions=partitions,
        table=table,
        leases=leases,
        wakeups=wakeups,
        clock=clock,
        limits=limits,
    )
    dispatcher = Dispatcher(
        partitions=partitions,
        decoder=decoder,
        table=table,
        quarantine=quarantine,
        backpressure=backpressure,
        records=records,
        wakeups=wakeups,
        clock=clock,
        counts=common.counts,
        lost_records=common.lost_records,
        failures=common.failures,
    )
    return Dispatch(
        partitions=partitions,
        table=table,
        quarantine=quarantine,
        answers=answers,
        claimer=claimer,
        dispatcher=dispatcher,
        ticker=ticker,
    )
