"""Unknown records are quarantined with everything a replay needs, in bounded transactions."""

import asyncio

import orjson
import pytest

from docllm.agent.dispatch.backpressure import Backpressure
from docllm.agent.dispatch.quarantine_queue import QuarantineQueue
from docllm.agent.inflight.decoder import RecordDecoder, distrusted, rejected_record
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.agent.ports import ClaimAnswer, Partition, Record, RejectedRecord
from docllm.agent.reporting.telemetry import Counts
from docllm.agent.routes.names import RouteNames
from docllm.producer.ledger.quarantine import headers_blob
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.settings.config import Config
from docllm.schemas.task.record.envelope import MAX_KEY_BYTES, Publication, RawHeaders, encode
from docllm.schemas.task.record.lanes import Lane
from tests.support.dispatch import new_record
from tests.support.ledger import FakeLedger, NoLetters, NoRelay, new_row

PARTITION = Partition("g.tasks", "id", 0, 1)
LEDGER = "0" * 32
LIMITS = InFlightLimits()


def new_queue(
    *,
    ledger: FakeLedger | None = None,
    partitions: Partitions | None = None,
    table: InFlightTable | None = None,
) -> QuarantineQueue:
    """Return a queue over these parts, or over empty ones."""
    return QuarantineQueue(
        ledger=ledger or FakeLedger(),
        letters=NoLetters(),
        partitions=Partitions({}, limits=LIMITS) if partitions is None else partitions,
        table=InFlightTable(limits=LIMITS) if table is None else table,
        counts=Counts(),
        own_orders=OwnOrders(NoRelay()),
        limits=LIMITS,
    )


def test_a_task_that_the_ledger_does_not_know_is_kept_with_its_batch_and_key() -> None:
    """The batch is stored: after a restored backup, a replay would otherwise use another batch."""
    headers = encode(Publication(ledger=LEDGER, group="g", batch="invoices", task_id=7, fence=1))
    delivery = RecordDecoder(ledger_id=LEDGER, group="g", naming=RouteNames(Config())).read(
        Record(
            partition=PARTITION, offset=3, timestamp_ms=0, key=b"key", value=b"{}", headers=headers
        )
    )
    assert isinstance(delivery, Delivery)

    kept = distrusted(delivery, "the ledger has no such task")

    assert (kept.key, kept.value, kept.disposition) == (b"key", b"{}", "rejected")
    assert ["docllm-batch", "invoices"] in orjson.loads(headers_blob(kept.headers))


def test_a_distrusted_record_leaves_the_records_behind_it_alone() -> None:
    """The ledger has the named task with another value; its own record may wait behind."""
    table = InFlightTable(limits=LIMITS)
    queue = new_queue(table=table)
    theirs, ours = (
        Delivery(
            partition=PARTITION,
            offset=at,
            timestamp_ms=0,
            publication=Publication(ledger=LEDGER, group="g", batch="b", task_id=7, fence=0),
            value=b"{}",
            digest=digest,
            route="r",
        )
        for at, digest in enumerate((b"1", b"2"))
    )
    theirs.row = new_row()
    for record in (theirs, ours):
        table.add(record, 0.0, redelivered=False)

    queue.quarantine_unknown(theirs, ClaimAnswer.CONFLICT, 0.0)

    assert table.is_own(ours) is None


def test_a_key_that_no_task_can_have_is_not_kept_in_memory() -> None:
    """Keys that no task can have are dropped: a thousand of 1 MiB would be 1 GiB."""
    read = RecordDecoder(ledger_id=LEDGER, group="g", naming=RouteNames(Config())).read
    headers = encode(Publication(ledger=LEDGER, group="g", batch="b", task_id=7, fence=0))

    records = [
        read(
            Record(
                partition=PARTITION,
                offset=3,
                timestamp_ms=0,
                key=b"k" * size,
                value=None,
                headers=headers,
            )
        )
        for size in (MAX_KEY_BYTES, MAX_KEY_BYTES + 1)
    ]

    assert [type(record) for record in records] == [Delivery, RejectedRecord]


@pytest.mark.parametrize(
    ("key", "headers"),
    [(bytes(1 << 20), []), (None, [("h", bytes(1 << 20))]), (None, [("h", None)] * 10_000)],
)
def test_keys_and_headers_weigh_as_values_do(key: bytes | None, headers: RawHeaders) -> None:
    """Keys and headers count as memory: some hundred records pause the reading of all topics.

    Reading resumes as the records are stored, a few at a time.
    """
    table, partitions = InFlightTable(limits=LIMITS), Partitions({}, limits=LIMITS)
    ledger = FakeLedger()
    queue = new_queue(ledger=ledger, partitions=partitions, table=table)
    pressure = Backpressure(
        table=table,
        partitions=partitions,
        quarantine=queue,
        slots=64,
        lanes={"g.tasks": Lane.NORMAL},
        limits=LIMITS,
    )
    for offset in range(130):
        record = Record(
            partition=PARTITION,
            offset=offset,
            timestamp_ms=0,
            key=key,
            value=b"{}",
            headers=headers,
        )
        queue.put(rejected_record(record, "why"), record)

    pressure.update()
    assert pressure.full

    asyncio.run(queue.keep())
    pressure.update()
    assert not pressure.full
    assert max(map(len, ledger.quarantined)) < 10
    assert queue.bytes == 0


def test_large_records_are_kept_a_few_at_a_time() -> None:
    """Large records are stored a few at a time: a hundred would be one transaction of 300 MiB."""
    queue = new_queue()
    large = RejectedRecord(
        topic_id="id",
        topic="g.tasks",
        partition=0,
        offset=0,
        key=None,
        value=bytes(LIMITS.quarantine_page_bytes // 2),
        headers=[],
        reason="why",
    )
    for _ in range(5):
        queue.put(large, new_record(0))

    assert [len(queue._page()) for _ in range(4)] == [2, 2, 1, 0]
