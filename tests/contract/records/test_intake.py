"""Inbox lines that their batch refuses are quarantined with the reason; none is lost."""

import asyncio

import pytest

from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.intake.acceptance import Intake
from docllm.agent.ledger.returned_letters import ReturnedLetters
from docllm.agent.ports import Assigned, Partition, Record
from docllm.agent.process.containment import MemoryWatch
from docllm.agent.process.failures import Failures
from docllm.agent.reporting.telemetry import Counts
from docllm.producer.ledger import batch_options, cancel, store
from docllm.producer.ledger.batch_options import TaskDefaults
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.schemas.ledger import tables
from docllm.schemas.ledger.migrations import ledger_id
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.settings.config import Config, InboxConfig
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.lanes import Lane
from tests.support.ledger import NoRelay
from tests.support.ledger_database import GROUP, LedgerDatabase
from tests.support.source import FakeSource

INBOX = Partition(f"{GROUP}.inbox", "id", 0, 1)
LINE, OTHER = b'{"id":"a","prompt":"Sum."}', b'{"id":"a","prompt":"Add."}'


async def take_in(
    ledger_db: LedgerDatabase,
    *values: bytes,
    config: Config | None = None,
    counts: Counts | None = None,
) -> FakeSource:
    """Let an intake work off these lines; return its source."""
    source = FakeSource(len(values))
    inbox = Intake(
        partitions=Partitions({INBOX.topic: source}, limits=InFlightLimits()),
        limits=InFlightLimits(),
        transactions=ledger_db.transactions,
        letters=ReturnedLetters(
            transactions=ledger_db.transactions,
            clock=SystemClock(),
            group=GROUP,
            ledger_id=ledger_db.run(ledger_id),
            redrive=False,
        ),
        apart=InlineExecutor(),
        clock=SystemClock(),
        counts=counts or Counts(),
        group=GROUP,
        config=config or Config(),
        own_orders=OwnOrders(NoRelay()),
        failures=Failures(),
        memory=MemoryWatch(SystemClock()),
    )
    inbox.deliver(Assigned((INBOX,)))
    inbox.deliver(
        [
            Record(
                partition=INBOX,
                offset=offset,
                timestamp_ms=0,
                key=None,
                value=value,
                headers=[(header_names.BATCH, b"b")],
            )
            for offset, value in enumerate(values)
        ]
    )
    running = asyncio.create_task(inbox.run())
    await asyncio.wait(
        [running, asyncio.create_task(source.is_marked.wait())],
        return_when=asyncio.FIRST_COMPLETED,
        timeout=30,
    )
    running.cancel()
    return source


OBSTACLES = {
    "made by a load": (
        "batch 'b' was made by a load and takes no record of the inbox; name another one in "
        "docllm-batch"
    ),
    "cancelled": "batch 'b' was cancelled",
    "of another group": "batch 'b' belongs to group 'other'",
    "other content": "its id is in batch 'b' with other content",
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_line_that_its_batch_refuses_is_quarantined(
    ledger_db: LedgerDatabase, obstacle: str
) -> None:
    """The line's producer cannot be notified, so the quarantine has the line and the reason."""
    origin = store.Origin.LOAD if obstacle == "made by a load" else store.Origin.INBOX
    into = ledger_db.batch("b", "other" if obstacle == "of another group" else GROUP, origin)
    if obstacle == "cancelled":
        ledger_db.call(cancel.cancel_batch, into, "tester")
    before = [LINE] if obstacle == "other content" else []

    counts = Counts()
    source = asyncio.run(take_in(ledger_db, *before, OTHER, counts=counts))

    (row,) = ledger_db.rows(tables.quarantine)
    assert (row.topic, row.record_offset, row.record_value) == (INBOX.topic, len(before), OTHER)
    assert OBSTACLES[obstacle] in row.error_text
    assert row.disposition == "rejected"
    assert source.watermark == len(before) + 1
    assert len(ledger_db.rows(tables.task)) == len(before)


def test_a_line_that_joins_a_loaded_batch_takes_its_tenant_and_priority(
    ledger_db: LedgerDatabase,
) -> None:
    """The batch has what `load --tenant --priority` set; a line that names its own keeps it."""
    into = ledger_db.batch("b", GROUP, store.Origin.LOAD)
    ledger_db.call(batch_options.set_defaults, into.id, TaskDefaults(tenant="acme", priority=0))
    named = b'{"id":"named","prompt":"Sum.","tenant":"bolt","priority":9}'

    asyncio.run(
        take_in(ledger_db, LINE, named, config=Config(inbox=InboxConfig(join_batches=True)))
    )

    tasks = {row.task_key: (row.tenant, Lane(row.lane)) for row in ledger_db.rows(tables.task)}
    assert tasks == {b"a": ("acme", Lane.BULK), b"named": ("bolt", Lane.URGENT)}


def test_a_line_that_makes_the_validator_panic_is_quarantined(ledger_db: LedgerDatabase) -> None:
    """The offset passes the line, and the lines around it become tasks.

    A bug once stopped every agent of a group for good over such a line.
    """
    schema = b'{"anyOf":[{"$id":"b","$ref":"#a","$defs":{"r":{"$anchor":"a"}}},{"$id":"./b"}]}'
    panic = b'{"id":"p","prompt":"Sum.","schema":%s}' % schema

    source = asyncio.run(take_in(ledger_db, LINE, panic, b'{"id":"b","prompt":"Sum."}'))

    (row,) = ledger_db.rows(tables.quarantine)
    assert (row.record_offset, row.record_value, row.disposition) == (1, panic, "undecodable")
    assert "PanicException" in row.error_text
    assert source.watermark == 3
    assert ledger_db.count(tables.task) == 2
