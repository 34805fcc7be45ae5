"""Builds the parts through which a record passes, from the ports that they use."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from docllm.agent.dispatch.answer_actions import AnswerActions
from docllm.agent.dispatch.backpressure import Backpressure
from docllm.agent.dispatch.body_loader import BodyLoader
from docllm.agent.dispatch.claimer import Claimer
from docllm.agent.dispatch.dispatcher import Dispatcher
from docllm.agent.dispatch.head_of_line import HeadOfLine
from docllm.agent.dispatch.quarantine_queue import QuarantineQueue
from docllm.agent.dispatch.record_finisher import RecordFinisher, Wakeups
from docllm.agent.dispatch.route_shelving import RouteShelving
from docllm.agent.dispatch.ticker import Ticker
from docllm.agent.execution.admission import Admission
from docllm.agent.execution.attempt_runner import AttemptRunner
from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.agent.execution.guard_gate import GuardGate
from docllm.agent.execution.lock_requests import ResourceLocks
from docllm.agent.execution.observability.attempt_traces import AttemptTraces
from docllm.agent.execution.output_writer import Outputs
from docllm.agent.execution.quota_gate import QuotaGate
from docllm.agent.execution.settler import Settler
from docllm.agent.execution.slots import Slots
from docllm.agent.execution.type_limits import TypeLimits
from docllm.agent.execution.unknown_types import UnknownTypes
from docllm.agent.handlers import Handlers
from docllm.agent.inflight.decoder import RecordDecoder
from docllm.agent.inflight.dropped_answers import DroppedAnswers
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.judge import Tier
from docllm.agent.lease import Leases
from docllm.agent.ports import Clock, Ledger, Letters
from docllm.agent.process.containment import MemoryWatch
from docllm.agent.process.failures import Failures
from docllm.agent.reporting.telemetry import Counts
from docllm.agent.routes import Router
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.task.record.lanes import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """The parts that are made first, because several others use them."""

    ledger: Ledger
    letters: Letters
    leases: Leases
    own_orders: OwnOrders
    wakeups: Wakeups
    lost_records: asyncio.Event
    failures: Failures
    memory: MemoryWatch
    clock: Clock
    counts: Counts
    limits: InFlightLimits
    longest_tier: Tier
    claim_s: float
    traces: AttemptTraces | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """What a task has to pass before its attempt, besides its route."""

    guards: GuardGate
    quotas: QuotaGate
    locks: ResourceLocks
    types: TypeLimits
    unknown_types: UnknownTypes


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The parts that run and settle claimed tasks."""

    admission: Admission
    slots: Slots
    settler: Settler


def make_execution(
    shared: SharedParts,
    gates: Gates,
    *,
    size: int,
    routes: Router,
    handlers: Handlers,
    outputs: Outputs,
    settler: Settler,
) -> Execution:
    """Build the parts that run claimed tasks, in `size` slots, and give their ends to `settler`."""
    suspects = CrashSuspects()
    admission = Admission(
        slots=size,
        leases=shared.leases,
        routes=routes,
        guards=gates.guards,
        quotas=gates.quotas,
        suspects=suspects,
        settler=settler,
        unknown_types=gates.unknown_types,
        types=gates.types,
        clock=shared.clock,
    )
    slots = Slots(
        admission=admission,
        guards=gates.guards,
        suspects=suspects,
        attempt_runner=_make_attempt_runner(
            shared, handlers=handlers, locks=gates.locks, outputs=outputs
        ),
        settler=settler,
        longest_tier=shared.longest_tier,
        unknown_types=gates.unknown_types,
        types=gates.types,
        clock=shared.clock,
        counts=shared.counts,
        memory=shared.memory,
        freed=shared.wakeups.claim,
        claim_s=shared.claim_s,
    )
    return Execution(admission=admission, slots=slots, settler=settler)


def _make_attempt_runner(
    shared: SharedParts, *, handlers: Handlers, locks: ResourceLocks, outputs: Outputs
) -> AttemptRunner:
    return AttemptRunner(
        handlers=handlers,
        locks=locks,
        outputs=outputs,
        clock=shared.clock,
        claim_s=shared.claim_s,
        traces=shared.traces,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """The parts that decide about records."""

    partitions: Partitions
    table: InFlightTable
    quarantine: QuarantineQueue
    answers: AnswerActions
    claimer: Claimer
    dispatcher: Dispatcher
    ticker: Ticker


def make_dispatch(
    shared: SharedParts,
    *,
    partitions: Partitions,
    lanes: Mapping[str, Lane],
    weight_of: Callable[[str], float],
    has_own_queue: Callable[[str], bool],
    decoder: RecordDecoder,
    admission: Admission,
    slots: Slots,
) -> Dispatch:
    """Build the parts that decide about records."""
    table = InFlightTable(
        limits=shared.limits, lanes=lanes, weight_of=weight_of, has_own_queue=has_own_queue
    )
    inflight = _make_inflight(shared, partitions, table, lanes, size=admission.slots)
    answers = AnswerActions(
        partitions=partitions,
        table=table,
        quarantine=inflight.quarantine,
        finisher=inflight.finisher,
        dropped_answers=inflight.dropped_answers,
        clock=shared.clock,
    )
    claimer = _make_claimer(shared, inflight, answers, decoder, admission, slots)
    return Dispatch(
        partitions=partitions,
        table=table,
        quarantine=inflight.quarantine,
        answers=answers,
        claimer=claimer,
        dispatcher=_make_dispatcher(shared, inflight, decoder),
        ticker=_make_ticker(shared, inflight, claimer, admission),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _InFlight:
    """The parts that remember records from their poll to their commit."""

    partitions: Partitions
    table: InFlightTable
    quarantine: QuarantineQueue
    backpressure: Backpressure
    finisher: RecordFinisher
    dropped_answers: DroppedAnswers


def _make_inflight(
    shared: SharedParts,
    partitions: Partitions,
    table: InFlightTable,
    lanes: Mapping[str, Lane],
    *,
    size: int,
) -> _InFlight:
    quarantine = QuarantineQueue(
        ledger=shared.ledger,
        letters=shared.letters,
        partitions=partitions,
        table=table,
        counts=shared.counts,
        own_orders=shared.own_orders,
        limits=shared.limits,
    )
    backpressure = Backpressure(
        table=table,
        partitions=partitions,
        quarantine=quarantine,
        slots=size,
        lanes=lanes,
        limits=shared.limits,
    )
    return _InFlight(
        partitions=partitions,
        table=table,
        quarantine=quarantine,
        backpressure=backpressure,
        finisher=RecordFinisher(
            partitions=partitions, table=table, backpressure=backpressure, wakeups=shared.wakeups
        ),
        dropped_answers=DroppedAnswers(shared.clock),
    )


def _make_claimer(
    shared: SharedParts,
    inflight: _InFlight,
    answers: AnswerActions,
    decoder: RecordDecoder,
    admission: Admission,
    slots: Slots,
) -> Claimer:
    return Claimer(
        ledger=shared.ledger,
        leases=shared.leases,
        claim_s=shared.claim_s,
        partitions=inflight.partitions,
        table=inflight.table,
        quarantine=inflight.quarantine,
        answers=answers,
        bodies=BodyLoader(ledger=shared.ledger, table=inflight.table, decoder=decoder),
        admission=admission,
        slots=slots,
        finisher=inflight.finisher,
        wakeups=shared.wakeups,
        clock=shared.clock,
        limits=shared.limits,
    )


def _make_ticker(
    shared: SharedParts, inflight: _InFlight, claimer: Claimer, admission: Admission
) -> Ticker:
    return Ticker(
        shelving=RouteShelving(table=inflight.table, admission=admission, limits=shared.limits),
        backpressure=inflight.backpressure,
        relief=HeadOfLine(
            ledger=shared.ledger,
            partitions=inflight.partitions,
            table=inflight.table,
            own_orders=shared.own_orders,
            limits=shared.limits,
        ),
        claimer=claimer,
        partitions=inflight.partitions,
        table=inflight.table,
        leases=shared.leases,
        wakeups=shared.wakeups,
        clock=shared.clock,
        limits=shared.limits,
    )


def _make_dispatcher(
    shared: SharedParts, inflight: _InFlight, decoder: RecordDecoder
) -> Dispatcher:
    return Dispatcher(
        partitions=inflight.partitions,
        decoder=decoder,
        table=inflight.table,
        quarantine=inflight.quarantine,
        backpressure=inflight.backpressure,
        finisher=inflight.finisher,
        dropped_answers=inflight.dropped_answers,
        wakeups=shared.wakeups,
        clock=shared.clock,
        counts=shared.counts,
        lost_records=shared.lost_records,
        failures=shared.failures,
    )
