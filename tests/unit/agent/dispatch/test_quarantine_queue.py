"""Unknown records are quarantined with everything a replay needs, in bounded transactions."""

import asyncio
from unittest.mock import AsyncMock, MagicMock

import orjson
import pytest

from agent.dispatch.backpressure import Backpressure
from agent.dispatch.quarantine_queue import QuarantineQueue
from agent.inflight.decoder import RecordDecoder, distrusted, rejected_record
from agent.inflight.delivery import Delivery
from agent.inflight.limits import InFlightLimits
from agent.inflight.partitions import Partitions
from agent.inflight.table import InFlightTable
from agent.ports import ClaimAnswer, Partition, Record, RejectedRecord
from producer.ledger.quarantine import headers_blob
from schemas.task.record.envelope import MAX_KEY_BYTES, Publication, RawHeaders, encode
from schemas.task.record.lanes import Lane

PARTITION = Partition("g.tasks", "id", 0, 1)
LEDGER = "0" * 32
LIMITS = InFlightLimits()


def test_a_task_that_the_ledger_does_not_know_is_kept_with_its_batch_and_key() -> None:
    """The batch is stored: after a restored backup, a replay would otherwise use another batch."""
    headers = encode(Publication(LEDGER, "g", "invoices", 7, 1))
    delivery = RecordDecoder(ledger_id=LEDGER, group="g", naming=MagicMock()).read(
        Record(PARTITION, 3, 0, b"key", b"{}", headers)
    )
    assert isinstance(delivery, Delivery)

    kept = distrusted(delivery, "the ledger has no such task")

    assert (kept.key, kept.value, kept.disposition) == (b"key", b"{}", "rejected")
    assert ["docllm-batch", "invoices"] in orjson.loads(headers_blob(kept.headers))


def test_a_distrusted_record_leaves_the_records_behind_it_alone() -> None:
    """The ledger has the named task with another value; its own record may wait behind."""
    table = InFlightTable(limits=LIMITS)
    aside = QuarantineQueue(
        ledger=MagicMock(),
        letters=MagicMock(),
        partitions=MagicMock(),
        table=table,
        counts=MagicMock(),
        publishing=MagicMock(),
        limits=LIMITS,
    )
    theirs, ours = (
        Delivery(PARTITION, at, 0, Publication(LEDGER, "g", "b", 7, 0), b"{}", digest, "r")
        for at, digest in enumerate((b"1", b"2"))
    )
    theirs.row = MagicMock(suspect=False, lane=Lane.NORMAL)
    for record in (theirs, ours):
        table.add(record, 0.0, redelivered=False)

    aside.quarantine_unknown(theirs, ClaimAnswer.CONFLICT, 0.0)

    assert table.is_own(ours) is None


def test_a_key_that_no_task_can_have_is_not_kept_in_memory() -> None:
    """Keys that no task can have are dropped: a thousand of 1 MiB would be 1 GiB."""
    read = RecordDecoder(ledger_id=LEDGER, group="g", naming=MagicMock()).read
    headers = encode(Publication(LEDGER, "g", "b", 7, 0))

    records = [
        read(Record(PARTITION, 3, 0, b"k" * size, None, headers))
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
    table, partitions, ledger = (
        InFlightTable(limits=LIMITS),
        Partitions({}, limits=LIMITS),
        AsyncMock(),
    )
    aside = QuarantineQueue(
        ledger=ledger,
        letters=AsyncMock(without_letters=AsyncMock(side_effect=list)),
        partitions=partitions,
        table=table,
        counts=MagicMock(),
        publishing=MagicMock(),
        limits=LIMITS,
    )
    pressure = Backpressure(
        table=table,
        partitions=partitions,
        quarantine=aside,
        slots=64,
        lanes={"g.tasks": Lane.NORMAL},
        limits=LIMITS,
    )
    for offset in range(130):
        record = Record(PARTITION, offset, 0, key, b"{}", headers)
        aside.put(rejected_record(record, "why"), record)

    pressure.update()
    assert pressure.full

    asyncio.run(aside.keep())
    pressure.update()
    assert not pressure.full
    assert max(len(call.args[0]) for call in ledger.quarantine.call_args_list) < 10
    assert aside.bytes == 0


def test_large_records_are_kept_a_few_at_a_time() -> None:
    """Large records are stored a few at a time: a hundred would be one transaction of 300 MiB."""
    aside = QuarantineQueue(
        ledger=MagicMock(),
        letters=MagicMock(),
        partitions=MagicMock(),
        table=MagicMock(),
        counts=MagicMock(),
        publishing=MagicMock(),
        limits=LIMITS,
    )
    large = RejectedRecord(
        "id", "g.tasks", 0, 0, None, bytes(LIMITS.quarantine_page_bytes // 2), [], "why"
    )
    for _ in range(5):
        aside.put(large, MagicMock())

    assert [len(aside._page()) for _ in range(4)] == [2, 2, 1, 0]
