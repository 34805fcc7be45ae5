"""Records are built from the ledger alone: a task as loaded, a dead letter with its reason.

A dead letter has the original bytes.
"""

from typing import Any

import pytest

from docllm.producer.ledger import quarantine
from docllm.producer.ledger.outbox import QUARANTINE, TASK
from docllm.producer.ports import Item, Order
from docllm.producer.publishing import record_builder
from docllm.schemas.ledger import tables
from docllm.schemas.task.record.envelope import (
    ENVELOPE_VERSION,
    MAX_TASK_BYTES,
    Outgoing,
    RawHeaders,
    decode,
)
from docllm.schemas.task.record.rejected_record import RejectedRecord
from docllm.schemas.task.record.topics import Topics
from docllm.schemas.task.states import Status
from tests.support.ledger_database import (
    BATCH,
    DEAD,
    GROUP,
    ORIGIN,
    RETRY,
    SUCCEEDED,
    LedgerDatabase,
    new_task,
)

TOPICS = Topics(GROUP)
BYTES = bytes(range(256)) + b"\r\n%s'\\"


def written(ledger_db: LedgerDatabase, destination: str, *items: Item) -> dict[Item, Outgoing]:
    order = Order(1, GROUP, destination, items)
    return ledger_db.call(record_builder.records_of, TOPICS, order, 1_700_000_000.0)


def killed(
    ledger_db: LedgerDatabase, *, raw_key: bytes | None = b"raw", value: bytes = BYTES
) -> int:
    (task_id,) = ledger_db.accept(
        [new_task("k\u00e9y", value, raw_key)], ledger_db.batch()
    ).new.values()
    ledger_db.settled(task_id, DEAD)
    return task_id


def rejected(offset: int = 5, **values: Any) -> RejectedRecord:
    given = {
        "key": b"\xffkey",
        "value": BYTES,
        "headers": [("h", b"\xff"), ("n", None)],
        "reason": "no headers of ours",
    }
    return RejectedRecord("topic-id", "group.tasks", 2, offset, **(given | values))


def test_a_task_travels_as_it_was_loaded(ledger_db: LedgerDatabase) -> None:
    """Key and value are the loaded bytes.

    The headers name ledger, group, batch, task and fence, and can be read back.
    """
    (task_id,) = ledger_db.accept([new_task("kéy", BYTES)], ledger_db.batch()).new.values()

    record = written(ledger_db, "tasks", Item(TASK, task_id, 0))[Item(TASK, task_id, 0)]

    assert (record.topic, record.key, record.value) == ("group.tasks", "kéy".encode(), BYTES)
    letter = decode(record.headers)
    assert (letter.ledger, letter.group, letter.batch) == (ledger_db.ledger_id, GROUP, BATCH)
    assert (letter.task_id, letter.fence, letter.counted_before) == (task_id, 0, 0)
    assert abs(letter.due_ms - 1_700_000_000_000) < 2000


def test_a_retry_says_when_it_is_due(ledger_db: LedgerDatabase) -> None:
    """The record of a retry goes to its tier with its new fence, attempts and due time."""
    (task_id,) = ledger_db.load("a")
    ledger_db.settled(task_id, RETRY)

    record = written(ledger_db, "retry.30s", Item(TASK, task_id, 1))[Item(TASK, task_id, 1)]

    letter = decode(record.headers)
    assert record.topic == "group.retry.30s"
    assert (letter.fence, letter.counted_before) == (1, 1)
    assert letter.due_ms == pytest.approx(1_700_000_031_000, abs=15_000)


def test_a_record_that_could_do_nothing_is_not_written(ledger_db: LedgerDatabase) -> None:
    """A final task, a fence that moved on, and a task without a row give no record."""
    done, retried, waiting = ledger_db.load("done", "retried", "waiting")
    owner = ledger_db.agent().next_owner()
    ledger_db.settle(ledger_db.claimed(done, owner), owner, SUCCEEDED)
    ledger_db.settle(ledger_db.claimed(retried, owner), owner, RETRY)

    records = written(
        ledger_db,
        "tasks",
        *(Item(TASK, task_id, 0) for task_id in (done, retried, waiting, 999_999)),
    )

    assert list(records) == [Item(TASK, waiting, 0)]


def test_a_running_task_gets_its_record(ledger_db: LedgerDatabase) -> None:
    """An order for a running task is sent, because its agent may die."""
    (task_id,) = ledger_db.load("a")
    ledger_db.claimed(task_id, ledger_db.agent().next_owner())

    assert written(ledger_db, "tasks", Item(TASK, task_id, 0))


def test_a_dead_letter_is_the_original_byte_for_byte(ledger_db: LedgerDatabase) -> None:
    """A dead letter has the original key, the loaded value, and our headers with the reason."""
    task_id = killed(ledger_db)

    record = written(ledger_db, "dlq", Item(TASK, task_id, 0))[Item(TASK, task_id, 0)]

    assert (record.topic, record.key, record.value) == ("group.dlq", b"raw", BYTES)
    headers = dict(record.headers)
    assert len(headers) == len(record.headers)
    assert headers["docllm-task"] == str(task_id).encode()
    assert headers["docllm-fence"] == b"0"
    assert headers["docllm-disposition"] == b"permanent"
    assert headers["docllm-error-class"] == b"BAD_REQUEST"
    assert headers["docllm-error"] == b"it answered 400"
    assert headers["docllm-origin"] == b"group.tasks/3/17"
    assert (
        headers["docllm-fingerprint"]
        == ledger_db.rows(tables.dead_letter)[0].fingerprint.hex().encode()
    )


def test_a_dead_letter_speaks_to_existing_tools(ledger_db: LedgerDatabase) -> None:
    """The headers that other tools read are present, and all of them are text."""
    task_id = killed(ledger_db)

    headers = dict(
        written(ledger_db, "dlq", Item(TASK, task_id, 0))[Item(TASK, task_id, 0)].headers
    )

    assert (
        headers["kafka_dlt-original-topic"] == headers["__dlq.errors.topic"] == ORIGIN[0].encode()
    )
    assert headers["kafka_dlt-exception-fqcn"] == b"docllm.BAD_REQUEST"
    assert (
        headers["kafka_dlt-exception-message"]
        == headers["__dlq.errors.message"]
        == b"it answered 400"
    )
    assert (
        headers["kafka_dlt-original-consumer-group"]
        == headers["__dlq.errors.group"]
        == GROUP.encode()
    )
    assert (headers["__dlq.errors.partition"], headers["__dlq.errors.offset"]) == (b"3", b"17")
    assert headers["__dlq.errors.delivery.count"] == b"1"
    assert all(value.decode().isprintable() for value in headers.values())


def test_a_key_that_was_null_stays_null(ledger_db: LedgerDatabase) -> None:
    """A task that arrived without a key has a dead letter without a key."""
    task_id = killed(ledger_db, raw_key=None)

    assert written(ledger_db, "dlq", Item(TASK, task_id, 0))[Item(TASK, task_id, 0)].key is None


def test_a_dead_letter_is_written_as_long_as_its_task_is_dead_of_it(
    ledger_db: LedgerDatabase,
) -> None:
    """A late sender finds the task replayed, and the replay has waited for the dead letter.

    A second dead letter could no longer say why the task died.
    """
    task_id = killed(ledger_db)
    ledger_db.run(lambda c: c.execute(tables.dead_letter.delete()))
    bare = written(ledger_db, "dlq", Item(TASK, task_id, 0))
    ledger_db.set(tables.task, task_id, status=0, fence=1)
    pending = written(ledger_db, "dlq", Item(TASK, task_id, 0))
    ledger_db.set(tables.task, task_id, status=int(Status.DEAD))
    dead_again = written(ledger_db, "dlq", Item(TASK, task_id, 0))

    assert [record.value for record in bare.values()] == [BYTES]
    assert (pending, dead_again) == ({}, {})


def test_a_pointer_keeps_everything_but_the_value(ledger_db: LedgerDatabase) -> None:
    """A record that is too large is announced by key and headers, without its value.

    A header says that the ledger has the bytes.
    """
    task_id = killed(ledger_db)
    record = written(ledger_db, "dlq", Item(TASK, task_id, 0))[Item(TASK, task_id, 0)]

    stand_in = record_builder.pointer(record)

    assert (stand_in.topic, stand_in.key, stand_in.value) == (record.topic, record.key, None)
    assert stand_in.headers == [
        *record.headers,
        ("docllm-pointer", b"%d bytes in the ledger" % len(BYTES)),
    ]


def test_a_quarantined_record_has_a_letter(ledger_db: LedgerDatabase) -> None:
    """The dead letter of a record has the record's bytes, position and reason.

    A large value is named by its digest.
    """
    records = [
        rejected(),
        rejected(6, value=b"x" * (MAX_TASK_BYTES + 1)),
        rejected(7, key=None, value=None),
    ]
    orders = ledger_db.call(quarantine.keep, GROUP, records)
    small, large, empty = ledger_db.call(record_builder.records_of, TOPICS, orders[0], 0.0).values()

    assert (small.topic, small.key, small.value) == ("group.dlq", b"\xffkey", BYTES)
    headers = dict(small.headers)
    assert (headers["docllm-disposition"], headers["docllm-error"]) == (
        b"undecodable",
        b"no headers of ours",
    )
    assert headers["docllm-v"] == ENVELOPE_VERSION.encode()
    assert (
        headers["docllm-fingerprint"]
        == ledger_db.rows(tables.quarantine)[0].fingerprint.hex().encode()
    )
    assert (headers["docllm-origin"], headers["__dlq.errors.offset"]) == (b"group.tasks/2/5", b"5")
    assert large.value is None
    assert len(dict(large.headers)["docllm-value-digest"]) == 32
    assert (empty.key, empty.value) == (None, None)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (
            [
                ("docllm-batch", b"old"),
                ("docllm-batch", b"q  1"),
                ("docllm-batch", b""),
                ("docllm-task", b"7"),
            ],
            [("docllm-batch", b"q  1")],
        ),
        ([("docllm-batch", b"a\nb")], [("docllm-batch", b"a\nb")]),
        ([("docllm-unreadable", b"")], [("docllm-unreadable", b"")]),
        ([("other", b"x")], []),
    ],
)
def test_a_quarantined_records_letter_says_its_batch(
    ledger_db: LedgerDatabase, headers: RawHeaders, expected: RawHeaders
) -> None:
    """The batch is unchanged, so the record is loaded back into that batch or refused.

    Nothing else that the record claims about itself is kept.
    """
    orders = ledger_db.call(quarantine.keep, GROUP, [rejected(headers=headers)])
    (letter,) = ledger_db.call(record_builder.records_of, TOPICS, orders[0], 0.0).values()

    assert [
        pair
        for pair in letter.headers
        if pair[0] in {"docllm-batch", "docllm-unreadable", "docllm-task", "other"}
    ] == expected


def test_dead_letters_of_tasks_and_of_records_share_an_order(ledger_db: LedgerDatabase) -> None:
    """One order for the dead-letter topic may name both kinds, even under the same number."""
    task_id = killed(ledger_db)
    ledger_db.call(quarantine.keep, GROUP, [rejected()])
    stranger = ledger_db.rows(tables.quarantine)[0].id

    records = written(ledger_db, "dlq", Item(TASK, task_id, 0), Item(QUARANTINE, stranger, 0))

    assert list(records) == [Item(TASK, task_id, 0), Item(QUARANTINE, stranger, 0)]
