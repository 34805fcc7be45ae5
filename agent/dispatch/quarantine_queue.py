"""The quarantine queue: rejected records that name no trustworthy task.

A record is finished only once it is stored in the quarantine. A dead letter that another tool wrote
back is not quarantined: it is not a publication, but it names its task.
"""

import logging
from collections import deque
from dataclasses import dataclass

from docllm.agent.inflight.decoder import distrusted
from docllm.agent.inflight.delivery import Delivery, DeliveryState
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports import ClaimAnswer, Ledger, Letters, Record, RejectedRecord
from docllm.agent.reporting.telemetry import Counts
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.codes import Code
from docllm.schemas.runtime import crash
from docllm.schemas.task.record.envelope import record_bytes

log = logging.getLogger(__name__)

LOST_S = 60.0  # between questions about a task that the ledger has lost

_CONFLICT = "its key or value differs from that of the task that it names"


@dataclass(kw_only=True, eq=False)
class QuarantineQueue:
    """The rejected records of one agent, until they are in the quarantine."""

    ledger: Ledger
    letters: Letters
    partitions: Partitions
    table: InFlightTable
    counts: Counts
    own_orders: OwnOrders
    limits: InFlightLimits

    def __post_init__(self) -> None:
        self._rejected: deque[tuple[RejectedRecord, Delivery | Record]] = deque()
        self.bytes = 0  # of records only; `InFlightTable` counts the bytes of deliveries

    def __len__(self) -> int:
        return len(self._rejected)

    def put(self, rejected: RejectedRecord, record: Record) -> None:
        """Queue a rejected record."""
        self._rejected.append((rejected, record))
        self.bytes += _size(rejected)

    def quarantine_if_foreign(self, delivery: Delivery, record: Record) -> bool:
        """Queue a new record if it is foreign to the task that it names; return whether it was.

        A record is foreign if the ledger knows the task with another key or value.
        """
        if self.table.is_own(delivery) is not False:
            return False
        self.put(distrusted(delivery, _CONFLICT), record)
        return True

    def quarantine_foreign_behind(self, delivery: Delivery) -> None:
        """Queue the foreign records behind a delivery that the ledger knows.

        They only name its task.
        """
        if delivery.task_id in self.table.behind.by_task:
            for foreign in self.table.behind.take_foreign(delivery):
                self._distrust(foreign, _CONFLICT)

    def quarantine_unknown(self, delivery: Delivery, answer: ClaimAnswer, now_s: float) -> None:
        """Queue a delivery that the ledger does not know, or knows with other content.

        If the content differs, the delivery's copies are queued too. A delivery without a body is
        delayed instead, so that its offset is not committed: the ledger knew its task, so an older
        backup of the ledger must have been restored.
        """
        if delivery.value is None and delivery.digest is not None:
            where = delivery.partition
            log.error(
                "%s/%d/%d: the ledger has lost its task; "
                "restart this agent to read the record again",
                where.topic,
                where.number,
                delivery.offset,
                extra={"code": Code.LEDGER_BEHIND},
            )
            self.table.delay(delivery, now_s + LOST_S)
        elif answer is ClaimAnswer.CONFLICT:
            for foreign in (delivery, *self.table.behind.take_alike(delivery)):
                self._distrust(foreign, _CONFLICT)
        else:
            self._distrust(delivery, "the ledger has no such task")

    def _distrust(self, delivery: Delivery, reason: str) -> None:
        self._rejected.append((distrusted(delivery, reason), delivery))
        # Records that wait behind this one must not be compared with a foreign record.
        delivery.state, delivery.row = DeliveryState.SETTLING, None

    async def keep(self) -> None:
        """Write the queued records to the quarantine, then finish them."""
        while self._rejected:
            page = self._page()
            foreign = await self.letters.without_letters([rejected for rejected, _ in page])
            orders = await self.ledger.quarantine(foreign) if foreign else []
            crash.reach("quarantine.kept")
            for rejected in foreign:
                log.warning(
                    "%s/%d/%d is quarantined: %s",
                    rejected.topic,
                    rejected.partition,
                    rejected.offset,
                    rejected.reason,
                    extra={"code": Code.RECORD_QUARANTINED},
                )
            for rejected, record in page:
                self.partitions.finish_record(record.partition, record.offset)
                if isinstance(record, Delivery):
                    self.table.remove(record)
                else:
                    self.bytes -= _size(rejected)
            self.counts.quarantined += len(foreign)
            self.partitions.flush()
            self.own_orders.send(orders)

    def _page(self) -> list[tuple[RejectedRecord, Delivery | Record]]:
        page: list[tuple[RejectedRecord, Delivery | Record]] = []
        room = self.limits.quarantine_page_bytes
        while self._rejected and len(page) < self.limits.quarantine_page and room > 0:
            page.append(self._rejected.popleft())
            room -= _size(page[-1][0])
        return page


def _size(rejected: RejectedRecord) -> int:
    return record_bytes(rejected.key, rejected.value, rejected.headers)
