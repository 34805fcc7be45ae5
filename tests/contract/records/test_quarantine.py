"""The quarantine keeps each rejected record once, whatever its bytes are.

Such a record names no task that we can trust.
"""

from typing import Any

import orjson
import pytest

from docllm.producer.ledger import quarantine
from docllm.producer.ledger.outbox import QUARANTINE, TASK, unpack
from docllm.producer.ports import Item
from docllm.schemas.ledger import tables
from docllm.schemas.task.record.envelope import MAX_TASK_BYTES, Outgoing
from docllm.schemas.task.record.rejected_record import RejectedRecord
from tests.support.ledger_database import GROUP, LedgerDatabase


def rejected(offset: int = 5, **values: Any) -> RejectedRecord:
    given = {"key": b"key", "value": b"value", "headers": [], "reason": "no headers of ours"}
    return RejectedRecord("topic-id", "group.tasks", 2, offset, **(given | values))


def kept(ledger_db: LedgerDatabase, *records: RejectedRecord) -> list[tuple[int, ...]]:
    orders = ledger_db.call(quarantine.keep, GROUP, records)
    return [item for order in orders for item in order.items]


def test_a_suspect_is_a_row_and_an_order(ledger_db: LedgerDatabase) -> None:
    """The record's position, bytes, headers and reason are kept; its dead letter is ordered."""
    items = kept(ledger_db, rejected(headers=[("a", b"\xff\x00"), ("b", None)]))

    (row,) = ledger_db.rows(tables.quarantine)
    assert items == [Item(QUARANTINE, row.id, 0)]
    assert (row.topic_id, row.topic, row.part, row.record_offset) == (
        "topic-id",
        "group.tasks",
        2,
        5,
    )
    assert (row.record_key, row.record_value, row.value_digest, row.seen) == (
        b"key",
        b"value",
        None,
        1,
    )
    assert (row.disposition, row.error_text, row.group_name) == (
        "undecodable",
        "no headers of ours",
        GROUP,
    )
    assert orjson.loads(row.headers) == [["a", "\\xff\x00"], ["b", None]]
    assert [order.destination for order in ledger_db.rows(tables.outbox)] == ["dlq"]


def test_the_same_record_again_is_only_counted(ledger_db: LedgerDatabase) -> None:
    """A record that is redelivered, or twice in one call, has one row and one order."""
    first = kept(ledger_db, rejected(), rejected())

    again = kept(ledger_db, rejected(), rejected(6))

    rows = ledger_db.rows(tables.quarantine)
    assert [row.seen for row in rows] == [3, 1]
    assert (first, again) == (
        [Item(QUARANTINE, rows[0].id, 0)],
        [Item(QUARANTINE, rows[1].id, 0)],
    )
    assert sum(len(unpack(row.items)) for row in ledger_db.rows(tables.outbox)) == 2


def test_a_topic_made_again_has_records_of_its_own(ledger_db: LedgerDatabase) -> None:
    """The same offset under another topic id is another record."""
    other = RejectedRecord(
        topic_id="other-id",
        topic="group.tasks",
        partition=2,
        offset=5,
        key=b"key",
        value=b"value",
        headers=[],
        reason="no headers of ours",
    )

    assert len(kept(ledger_db, rejected(), other)) == 2


def test_a_large_value_is_cut_and_named_by_its_digest(ledger_db: LedgerDatabase) -> None:
    """A value that may be a task with one wrong letter is kept whole.

    Its topic is trimmed, so the record would be lost. A larger value can be no task.
    """
    largest = b"'\0\\" * (MAX_TASK_BYTES // 3)  # bytes that a quoted text would escape
    kept(ledger_db, rejected(1, value=largest), rejected(2, value=largest + b"x"))

    whole, cut = ledger_db.rows(tables.quarantine)
    assert len(largest) == MAX_TASK_BYTES
    assert (whole.record_value == largest, whole.value_digest) == (True, None)
    assert (len(cut.record_value), len(cut.value_digest)) == (65_536, 16)


STRANGE = {
    "half a surrogate pair in the reason": {"reason": "broken \ud800 half"},
    "half a surrogate pair in a header's name": {"headers": [("broken \udcff", b"x")]},
    "no UTF-8 in a header": {"headers": [("h", b"\xff\xfe\x80")]},
    "headers without end": {"headers": [(f"h{number}", b"x" * 500) for number in range(100)]},
    "one header without end": {"headers": [("h", b"x" * 100_000)]},
    "a reason without end": {"reason": "why " * 10_000},
    "a key without end": {"key": b"k" * 200_000},
    "nothing": {"key": None, "value": None, "reason": ""},
    "zero bytes": {"key": b"\0", "value": b"\0" * 10, "reason": "\0"},
}


@pytest.mark.parametrize("strange", STRANGE.values(), ids=STRANGE)
def test_nothing_is_too_strange_to_be_kept(
    ledger_db: LedgerDatabase, strange: dict[str, Any]
) -> None:
    """A foreign record is stored as far as possible, and is finished."""
    assert len(kept(ledger_db, rejected(**strange))) == 1

    (row,) = ledger_db.rows(tables.quarantine)
    assert len(row.headers) <= quarantine.KEPT_HEADER_BYTES
    assert len(row.error_text) <= 2000
    assert len(row.record_key or b"") <= quarantine.BEGINNING_BYTES


def test_our_own_headers_are_kept_however_many_others_there_are(ledger_db: LedgerDatabase) -> None:
    """A replay needs the batch.

    Without it, a bug once made a record of a cancelled batch a task of another batch.
    """
    kept(
        ledger_db,
        rejected(
            headers=[
                *((f"h{number}", b"x" * 500) for number in range(100)),
                ("docllm-batch", b"invoices"),
            ]
        ),
    )

    (row,) = ledger_db.rows(tables.quarantine)
    assert orjson.loads(row.headers)[0] == ["docllm-batch", "invoices"]


def test_an_item_that_its_topic_refuses_for_good_is_recorded(ledger_db: LedgerDatabase) -> None:
    """An item that cannot be published even as a pointer has one row, and no dead letter."""
    record = Outgoing("group.dlq", b"key", b"value", [("h", b"x")])
    for _ in range(2):
        ledger_db.call(
            quarantine.undeliverable,
            group=GROUP,
            item=Item(TASK, 7, 1),
            record=record,
            reason="too large",
        )

    (row,) = ledger_db.rows(tables.quarantine)
    assert (row.record_key, row.disposition, row.error_text) == (b"key", "rejected", "too large")
    assert ledger_db.count(tables.outbox) == 0
