"""A loader sends the records of a chunk together, and leaves to the relay what did not arrive."""

import asyncio
from collections.abc import Callable, Sequence

import orjson

from docllm.producer.input.lines import InvalidLine, ValidLine, read_line
from docllm.producer.ledger.outbox import TASK, unpack
from docllm.producer.loading.loader import Loader, Summary
from docllm.producer.ports import Item, Refusal
from docllm.producer.tracing.publications import PublicationTraces
from docllm.schemas.ledger import tables
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.envelope import Outgoing, decode
from docllm.schemas.task.record.topics import Topics
from tests.support.ledger_database import GROUP, LedgerDatabase
from tests.support.spans import KeptSpans

URGENT, NORMAL, BULK = 9, 5, 0


class FakePublisher:
    """Delivers the records that `refuse` lets pass, and keeps each call's records."""

    def __init__(self, refuse: Callable[[Outgoing], bool] = lambda _: False) -> None:
        self.refuse = refuse
        self.calls: list[list[Outgoing]] = []

    async def publish(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        self.calls.append(list(records))
        return [
            Refusal("no broker", permanent=False) if self.refuse(record) else None
            for record in records
        ]

    def waiting(self) -> int:
        return 0

    async def close(self) -> None:
        return


def line(number: int, key: str, priority: int) -> ValidLine | InvalidLine:
    return read_line(number, orjson.dumps({"id": key, "prompt": "x", "priority": priority}))


def load(
    ledger_db: LedgerDatabase,
    publisher: FakePublisher,
    lines: Sequence[ValidLine | InvalidLine],
    *,
    refused: Callable[[InvalidLine], None] = lambda _: None,
    traces: PublicationTraces | None = None,
) -> Summary:
    loader = Loader(
        transactions=ledger_db.transactions,
        reading=InlineExecutor(),
        publisher=publisher,
        topics=Topics(GROUP),
        clock=SystemClock(),
        ledger_id=ledger_db.ledger_id,
        into=ledger_db.batch(),
        max_attempts_of=lambda _type: 5,
        reject=refused,
        traces=traces,
    )
    return asyncio.run(loader.load(lines))


MIXED = [
    line(number, key, priority)
    for number, (key, priority) in enumerate(
        [
            ("bulk-1", BULK),
            ("urgent-1", URGENT),
            ("normal-1", NORMAL),
            ("urgent-2", URGENT),
            ("bulk-2", BULK),
            ("normal-2", NORMAL),
        ],
        start=1,
    )
]


def test_the_orders_of_several_lanes_are_sent_together(ledger_db: LedgerDatabase) -> None:
    """Each record goes to its lane's topic, names its own task, and its order is gone."""
    publisher = FakePublisher()

    summary = load(ledger_db, publisher, MIXED)

    (records,) = publisher.calls
    assert sorted((record.topic, record.key) for record in records) == [
        (f"{GROUP}.tasks", b"normal-1"),
        (f"{GROUP}.tasks", b"normal-2"),
        (f"{GROUP}.tasks.bulk", b"bulk-1"),
        (f"{GROUP}.tasks.bulk", b"bulk-2"),
        (f"{GROUP}.tasks.urgent", b"urgent-1"),
        (f"{GROUP}.tasks.urgent", b"urgent-2"),
    ]
    ids = {row.task_key: row.id for row in ledger_db.rows(tables.task)}
    assert {record.key: decode(record.headers).task_id for record in records} == ids
    assert ledger_db.rows(tables.outbox) == []
    assert (summary.new, summary.unsent) == (6, 0)


def test_each_order_keeps_its_own_records_that_did_not_arrive(ledger_db: LedgerDatabase) -> None:
    """A lane whose records all arrived has no order left; another keeps just the lost one."""
    lost = {b"urgent-1", b"bulk-2"}

    summary = load(ledger_db, FakePublisher(lambda record: record.key in lost), MIXED)

    ids = {row.task_key: row.id for row in ledger_db.rows(tables.task)}
    assert {row.destination: unpack(row.items) for row in ledger_db.rows(tables.outbox)} == {
        "tasks.urgent": (Item(TASK, ids[b"urgent-1"], 0),),
        "tasks.bulk": (Item(TASK, ids[b"bulk-2"], 0),),
    }
    assert (summary.new, summary.unsent, summary.errors) == (6, 2, ["no broker"])


def test_bad_lines_and_clashes_are_reported_in_the_order_of_the_input(
    ledger_db: LedgerDatabase,
) -> None:
    """Good lines around them are loaded as the tasks that they are."""
    load(ledger_db, FakePublisher(), [line(1, "known", NORMAL)])
    publisher, refused = FakePublisher(), list[InvalidLine]()

    summary = load(
        ledger_db,
        publisher,
        [
            line(1, "new-1", NORMAL),
            read_line(2, b"{"),
            line(3, "known", URGENT),
            line(4, "known", NORMAL),
            read_line(5, b"[]"),
            line(6, "new-2", BULK),
        ],
        refused=refused.append,
    )

    assert [bad.line for bad in refused] == [2, 3, 5]
    assert (summary.new, summary.known, summary.bad) == (2, 1, 3)
    assert [record.key for record in publisher.calls[0]] == [b"new-1", b"new-2"]


def test_every_record_of_a_traced_load_has_a_trace_of_its_own(ledger_db: LedgerDatabase) -> None:
    """The headers of one record are not those of another."""
    publisher = FakePublisher()
    traces = PublicationTraces(
        spans=KeptSpans(), ledger=ledger_db.ledger_id, ratio=1.0, system="kafka"
    )

    load(ledger_db, publisher, MIXED, traces=traces)

    (records,) = publisher.calls
    parents = [dict(record.headers)[header_names.TRACEPARENT] for record in records]
    assert len(set(parents)) == len(parents) == len(MIXED)
    assert all(len(dict(record.headers)) == len(record.headers) for record in records)
