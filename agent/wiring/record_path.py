"""Builds the parts that decide about records, each from the parts made before it."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

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
from docllm.agent.execution.slots import Slots
from docllm.agent.inflight.decoder import RecordDecoder
from docllm.agent.inflight.dropped_answers import DroppedAnswers
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.lease import Leases
from docllm.agent.ports import Clock, Ledger, Letters
from docllm.agent.process.failures import Failures
from docllm.agent.reporting.telemetry import Counts
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.task.record.lanes import Lane


@dataclass(kw_only=True)
class RecordPath:
    """The parts that decide about records; each is built when it is first asked for."""

    ledger: Ledger
    letters: Letters
    leases: Leases
    own_orders: OwnOrders
    partitions: Partitions
    decoder: RecordDecoder
    lanes: Mapping[str, Lane]
    weight_of: Callable[[str], float]
    has_own_queue: Callable[[str], bool]
    admission: Admission
    slots: Slots
    wakeups: Wakeups
    failures: Failures
    clock: Clock
    counts: Counts
    limits: InFlightLimits
    claim_s: float
    lost_records: asyncio.Event = field(default_factory=asyncio.Event)

    @cached_property
    def table(self) -> InFlightTable:
        """The deliveries in this agent's hands."""
        return InFlightTable(
            limits=self.limits,
            lanes=self.lanes,
            weight_of=self.weight_of,
            has_own_queue=self.has_own_queue,
        )

    @cached_property
    def quarantine(self) -> QuarantineQueue:
        """The rejected records on their way to the quarantine."""
        return QuarantineQueue(
            ledger=self.ledger,
            letters=self.letters,
            partitions=self.partitions,
            table=self.table,
            counts=self.counts,
            own_orders=self.own_orders,
            limits=self.limits,
        )

    @cached_property
    def _backpressure(self) -> Backpressure:
        return Backpressure(
            table=self.table,
            partitions=self.partitions,
            quarantine=self.quarantine,
            slots=self.admission.slots,
            lanes=self.lanes,
            limits=self.limits,
        )

    @cached_property
    def _finisher(self) -> RecordFinisher:
        return RecordFinisher(
            partitions=self.partitions,
            table=self.table,
            backpressure=self._backpressure,
            wakeups=self.wakeups,
        )

    @cached_property
    def _dropped_answers(self) -> DroppedAnswers:
        return DroppedAnswers(self.clock)

    @cached_property
    def answers(self) -> AnswerActions:
        """Follows the ledger's answers to claims."""
        return AnswerActions(
            partitions=self.partitions,
            table=self.table,
            quarantine=self.quarantine,
            finisher=self._finisher,
            dropped_answers=self._dropped_answers,
            clock=self.clock,
        )

    @cached_property
    def claimer(self) -> Claimer:
        """Asks about records and claims their tasks."""
        return Claimer(
            ledger=self.ledger,
            leases=self.leases,
            claim_s=self.claim_s,
            partitions=self.partitions,
            table=self.table,
            quarantine=self.quarantine,
            answers=self.answers,
            bodies=BodyLoader(ledger=self.ledger, table=self.table, naming=self.decoder.naming),
            admission=self.admission,
            slots=self.slots,
            finisher=self._finisher,
            wakeups=self.wakeups,
            clock=self.clock,
            limits=self.limits,
        )

    @cached_property
    def dispatcher(self) -> Dispatcher:
        """Takes records from their sources, and the verdicts on their tasks."""
        return Dispatcher(
            partitions=self.partitions,
            decoder=self.decoder,
            table=self.table,
            quarantine=self.quarantine,
            backpressure=self._backpressure,
            finisher=self._finisher,
            dropped_answers=self._dropped_answers,
            wakeups=self.wakeups,
            clock=self.clock,
            counts=self.counts,
            lost_records=self.lost_records,
            failures=self.failures,
        )

    @cached_property
    def ticker(self) -> Ticker:
        """Does what depends on the time alone."""
        return Ticker(
            shelving=RouteShelving(table=self.table, admission=self.admission, limits=self.limits),
            backpressure=self._backpressure,
            relief=HeadOfLine(
                ledger=self.ledger,
                partitions=self.partitions,
                table=self.table,
                own_orders=self.own_orders,
                limits=self.limits,
            ),
            claimer=self.claimer,
            partitions=self.partitions,
            table=self.table,
            leases=self.leases,
            wakeups=self.wakeups,
            clock=self.clock,
            limits=self.limits,
        )
