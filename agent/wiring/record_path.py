"""Composes the parts that decide about records, each from those above it."""

import asyncio
from collections.abc import Callable, Mapping

from docllm.agent.dispatch.answer_actions import AnswerActions
from docllm.agent.dispatch.backpressure import Backpressure
from docllm.agent.dispatch.claimer import Claimer
from docllm.agent.dispatch.dispatcher import Dispatcher
from docllm.agent.dispatch.head_of_line import HeadOfLine
from docllm.agent.dispatch.quarantine_queue import QuarantineQueue
from docllm.agent.dispatch.record_finisher import RecordFinisher, Wakeups
from docllm.agent.dispatch.route_shelving import RouteShelving
from docllm.agent.dispatch.ticker import Ticker
from docllm.agent.execution.admission import Admission
from docllm.agent.execution.slots import Slots
from docllm.agent.inflight.decoder import BodyLoader, RecordDecoder
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


class RecordPath:
    """The parts that decide about records."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        letters: Letters,
        leases: Leases,
        own_orders: OwnOrders,
        partitions: Partitions,
        decoder: RecordDecoder,
        lanes: Mapping[str, Lane],
        weight_of: Callable[[str], float],
        has_own_queue: Callable[[str], bool],
        admission: Admission,
        slots: Slots,
        wakeups: Wakeups,
        failures: Failures,
        clock: Clock,
        counts: Counts,
        limits: InFlightLimits,
        claim_s: float,
    ) -> None:
        self.partitions = partitions
        self.lost_records = asyncio.Event()
        dropped_answers = DroppedAnswers(clock)
        self.table = table = InFlightTable(
            limits=limits, lanes=lanes, weight_of=weight_of, has_own_queue=has_own_queue
        )
        self.quarantine = QuarantineQueue(
            ledger=ledger,
            letters=letters,
            partitions=partitions,
            table=table,
            counts=counts,
            own_orders=own_orders,
            limits=limits,
        )
        backpressure = Backpressure(
            table=table,
            partitions=partitions,
            quarantine=self.quarantine,
            slots=admission.slots,
            lanes=lanes,
            limits=limits,
        )
        finisher = RecordFinisher(
            partitions=partitions, table=table, backpressure=backpressure, wakeups=wakeups
        )
        self.answers = AnswerActions(
            partitions=partitions,
            table=table,
            quarantine=self.quarantine,
            finisher=finisher,
            dropped_answers=dropped_answers,
            clock=clock,
        )
        self.claimer = Claimer(
            ledger=ledger,
            leases=leases,
            claim_s=claim_s,
            partitions=partitions,
            table=table,
            quarantine=self.quarantine,
            answers=self.answers,
            bodies=BodyLoader(ledger=ledger, table=table, naming=decoder.naming),
            admission=admission,
            slots=slots,
            finisher=finisher,
            wakeups=wakeups,
            clock=clock,
            limits=limits,
        )
        self.dispatcher = Dispatcher(
            partitions=partitions,
            decoder=decoder,
            table=table,
            quarantine=self.quarantine,
            backpressure=backpressure,
            finisher=finisher,
            dropped_answers=dropped_answers,
            wakeups=wakeups,
            clock=clock,
            counts=counts,
            lost_records=self.lost_records,
            failures=failures,
        )
        self.ticker = Ticker(
            shelving=RouteShelving(table=table, admission=admission, limits=limits),
            backpressure=backpressure,
            relief=HeadOfLine(
                ledger=ledger,
                partitions=partitions,
                table=table,
                own_orders=own_orders,
                limits=limits,
            ),
            claimer=self.claimer,
            partitions=partitions,
            table=table,
            leases=leases,
            wakeups=wakeups,
            clock=clock,
            limits=limits,
        )
