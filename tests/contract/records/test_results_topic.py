"""The lines of tasks that have ended reach the topic of results, each once at least."""

from collections.abc import Sequence
from typing import Any

import orjson

from docllm.agent.ledger.settlements.settling import settle
from docllm.agent.ports.outcome import Dead, Failure, Outcome, Succeeded
from docllm.producer.ledger import outbox
from docllm.producer.ledger.results import export
from docllm.producer.ledger.results.result_lines import docllm_line
from docllm.producer.ports import Order
from docllm.producer.publishing.relay import Relay
from docllm.producer.publishing.result_records import MAX_BYTES
from docllm.schemas.ledger import tables
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.record.envelope import Outgoing
from docllm.schemas.task.record.topics import Topics
from docllm.schemas.task.result.codec import POINTER, VALUE
from docllm.schemas.task.result.output_pointer import OutputPointer
from tests.contract.records.test_relay import LOST, FakePublisher
from tests.contract.support.ledger_dead import replayed
from tests.support.ledger_database import (
    BATCH,
    GROUP,
    LONGEST,
    SPENT,
    LedgerDatabase,
    settlement,
)

SUCCEEDED = Succeeded(orjson.dumps({"total": 7}), VALUE, SPENT)
DIED = Dead(Failure(ErrorClass.TOO_LONG, "it answered 413"), SPENT)


def end(
    ledger_db: LedgerDatabase, task_id: int, outcome: Outcome, *, streams_results: bool = True
) -> list[Order]:
    """Let a task end so in an agent; return the orders that it sends."""
    owner, fence = ledger_db.agent().next_owner(), ledger_db.task(task_id).fence
    given = [settlement(ledger_db.claimed(task_id, owner, fence), owner, outcome)]
    _, orders = ledger_db.call(
        settle,
        group=GROUP,
        settlements=given,
        now_utc_s=0.0,
        longest_tier=LONGEST,
        streams_results=streams_results,
    )
    return orders


def relay(ledger_db: LedgerDatabase, publisher: FakePublisher, *, results: bool = True) -> Relay:
    return Relay(
        transactions=ledger_db.transactions,
        publisher=publisher,
        topics=Topics(GROUP, ("30s",), results=results),
        clock=SystemClock(),
    )


async def sent(
    ledger_db: LedgerDatabase, orders: Sequence[Order], *, results: bool = True
) -> list[Outgoing]:
    """Send orders as their agent does; return the records. None of the orders is left."""
    publisher = FakePublisher()
    await relay(ledger_db, publisher, results=results).send(orders)
    assert ledger_db.count(tables.outbox) == 0
    return publisher.delivered


def exported(ledger_db: LedgerDatabase, task_id: int) -> Any:
    return orjson.loads(docllm_line(ledger_db.call(export.one_task, task_id)) or b"")


async def test_the_line_of_a_success_is_that_of_an_export(ledger_db: LedgerDatabase) -> None:
    """Its key is the task's id, and a header names the batch."""
    (task_id,) = ledger_db.load("a")

    (record,) = await sent(ledger_db, end(ledger_db, task_id, SUCCEEDED))

    assert (record.topic, record.key) == (f"{GROUP}.results", b"a")
    assert record.headers == [("docllm-batch", BATCH.encode())]
    line = orjson.loads(record.value or b"")
    assert line == exported(ledger_db, task_id)
    assert (line["status"], line["result"]) == ("succeeded", {"total": 7})
    assert not (record.value or b"").endswith(b"\n")


async def test_a_group_without_the_topic_orders_nothing(ledger_db: LedgerDatabase) -> None:
    """A success has no order, and a death has its letter alone."""
    first, second = ledger_db.load("a", "b")
    assert end(ledger_db, first, SUCCEEDED, streams_results=False) == []

    orders = end(ledger_db, second, DIED, streams_results=False)

    (record,) = await sent(ledger_db, orders, results=False)
    assert record.topic == f"{GROUP}.dlq"


async def test_the_line_of_a_death_goes_before_its_letter(ledger_db: LedgerDatabase) -> None:
    """Whatever ends the task orders its letter, so no death lacks its line."""
    (task_id,) = ledger_db.load("a")

    line, letter = await sent(ledger_db, end(ledger_db, task_id, DIED))

    assert (line.topic, letter.topic) == (f"{GROUP}.results", f"{GROUP}.dlq")
    assert orjson.loads(line.value or b"") == exported(ledger_db, task_id)
    assert orjson.loads(line.value or b"")["error"]["code"] == "TOO_LONG"


async def test_a_letter_waits_for_its_line(ledger_db: LedgerDatabase) -> None:
    """A replay waits for the letter, so the line of this death is on its topic by then."""
    (task_id,) = ledger_db.load("a")
    orders = end(ledger_db, task_id, DIED)
    publisher = FakePublisher(lambda record: LOST if record.topic.endswith("results") else None)
    sender = relay(ledger_db, publisher)
    await sender.send(orders)
    assert publisher.delivered == []
    assert len(ledger_db.call(outbox.ordered, GROUP, "dlq")) == 1
    publisher.answer = lambda _: None
    ledger_db.ago(tables.outbox.c.due_at, 1)

    await sender.relay_once()

    assert [record.topic for record in publisher.delivered] == [f"{GROUP}.results", f"{GROUP}.dlq"]
    assert ledger_db.count(tables.outbox) == 0


async def test_a_line_that_its_agent_did_not_send_is_relayed(ledger_db: LedgerDatabase) -> None:
    """The agent was killed after the settle; a final task's order is not dropped."""
    (task_id,) = ledger_db.load("a")
    end(ledger_db, task_id, SUCCEEDED)
    publisher = FakePublisher()
    other = relay(ledger_db, publisher)
    assert await other.drop_final() == 0
    ledger_db.ago(tables.outbox.c.due_at, 1)

    assert await other.relay_once() == 1
    assert [record.key for record in publisher.delivered] == [b"a"]


async def test_a_replayed_task_has_a_new_line(ledger_db: LedgerDatabase) -> None:
    """An order of its death that is sent late has no effect."""
    (task_id,) = ledger_db.load("a")
    late = end(ledger_db, task_id, DIED)
    statuses = [record.topic for record in await sent(ledger_db, late)]
    assert statuses == [f"{GROUP}.results", f"{GROUP}.dlq"]
    replayed(ledger_db)
    ledger_db.run(lambda c: c.execute(tables.outbox.delete()))
    assert await sent(ledger_db, late) == []

    (record,) = await sent(ledger_db, end(ledger_db, task_id, SUCCEEDED))

    assert orjson.loads(record.value or b"")["status"] == "succeeded"


async def test_a_large_result_stays_in_the_ledger(ledger_db: LedgerDatabase) -> None:
    """The line says so in the place of the result, and is whole otherwise."""
    (task_id,) = ledger_db.load("a")
    outcome = Succeeded(orjson.dumps("x" * MAX_BYTES), VALUE, SPENT)

    (record,) = await sent(ledger_db, end(ledger_db, task_id, outcome))

    whole = exported(ledger_db, task_id)
    assert len(whole["result"]) == MAX_BYTES
    line = orjson.loads(record.value or b"")
    assert line == whole | {"result": None, "result_in": "ledger"}


async def test_a_result_outside_the_ledger_is_named(ledger_db: LedgerDatabase) -> None:
    """Whoever reads the line fetches the object."""
    (task_id,) = ledger_db.load("a")
    uri = "s3://bucket/out/a-1-0.json"
    pointer = OutputPointer(uri=uri, size=90, sha256="00", codec=VALUE, start=10)

    (record,) = await sent(
        ledger_db, end(ledger_db, task_id, Succeeded(pointer.stored(), POINTER, SPENT))
    )

    line = orjson.loads(record.value or b"")
    assert (line["status"], line["result"], line["result_in"]) == ("succeeded", None, uri)
    assert line["output"] == uri
