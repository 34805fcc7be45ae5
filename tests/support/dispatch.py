"""The parts that decide about records, over a ledger without a database."""

from collections.abc import Sequence
from unittest.mock import create_autospec

from docllm.agent.dispatch.record_finisher import Wakeups
from docllm.agent.execution.crash_suspects import CrashSuspects
from docllm.agent.execution.slots import Slots
from docllm.agent.inflight.decoder import RecordDecoder
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.ports import Assigned, Partition, Record
from docllm.agent.ports.outcome import Released
from docllm.agent.process.failures import Failures
from docllm.agent.reporting.telemetry import Counts
from docllm.agent.routes.names import RouteNames
from docllm.agent.wiring.record_path import RecordPath
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.settings.config import Config
from docllm.schemas.task.record.envelope import Publication, encode
from docllm.schemas.task.record.lanes import Lane
from tests.support.clock import HandClock
from tests.support.ledger import FakeLedger, NoLetters, NoRelay
from tests.support.routes import routes
from tests.support.slots import OneLease, SlotsHarness, ending
from tests.support.source import FakeSource

PARTITION = Partition("group.tasks", "id", 0, 1)
LEDGER = "00" * 16


def new_record(offset: int, fence: int = 0, value: bytes = b"{}") -> Record:
    """Return a record of task 7."""
    publication = Publication(ledger=LEDGER, group="group", batch="batch", task_id=7, fence=fence)
    return Record(
        partition=PARTITION,
        offset=offset,
        timestamp_ms=0,
        key=b"k",
        value=value,
        headers=encode(publication),
    )


class DispatchHarness:
    """A dispatcher's parts that own one partition; its slots run nothing and record their calls."""

    def __init__(
        self,
        *,
        partition: Partition = PARTITION,
        config: Config | None = None,
        decoder: RecordDecoder | None = None,
        counts: Counts | None = None,
        clock: HandClock | None = None,
        limits: InFlightLimits | None = None,
    ) -> None:
        self.ledger, self.counts = FakeLedger(), counts or Counts()
        self.partition = partition
        self.slots = create_autospec(Slots, instance=True)
        clock, limits = clock or HandClock(), limits or InFlightLimits()
        self.parts = RecordPath(
            ledger=self.ledger,
            letters=NoLetters(),
            leases=OneLease(),
            own_orders=OwnOrders(NoRelay()),
            wakeups=Wakeups(),
            failures=Failures(),
            clock=clock,
            counts=self.counts,
            limits=limits,
            claim_s=60.0,
            partitions=Partitions({partition.topic: FakeSource()}, limits=limits),
            decoder=decoder
            or RecordDecoder(
                ledger_id=LEDGER, group="group", naming=RouteNames(config or Config())
            ),
            lanes={partition.topic: Lane.NORMAL},
            weight_of=lambda _tenant: 1.0,
            has_own_queue=lambda _type: False,
            admission=SlotsHarness(routes(), ending(Released())).admission(CrashSuspects()),
            slots=self.slots,
        )
        self.parts.dispatcher.deliver(Assigned((partition,)))

    @property
    def unfinished(self) -> int:
        """Return how many records of the partition are not finished."""
        return self.parts.partitions.unfinished(self.partition.topic)


def harness_after(
    fences: Sequence[int], forged: Sequence[int] = (), config: Config | None = None
) -> tuple[DispatchHarness, Delivery]:
    """Return a dispatcher that read a record of each fence, and the first delivery.

    The records at the places `forged` have other bytes.
    """
    harness = DispatchHarness(config=config)
    harness.parts.dispatcher.deliver(
        [
            new_record(offset, fence, b"other" if offset in forged else b"{}")
            for offset, fence in enumerate(fences)
        ]
    )
    (first,) = harness.parts.table.take_to_ask(0.0, 10)
    return harness, first
