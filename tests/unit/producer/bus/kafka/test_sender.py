"""A fatal error costs the producer a client and the records in flight. No broker is asked."""

import asyncio
from collections.abc import Iterator

import pytest

from docllm.producer.bus.kafka import publisher as publisher_module
from docllm.producer.bus.kafka.publisher import KafkaPublisher
from docllm.producer.ports import Refusal
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import KafkaConfig
from docllm.schemas.task.record.envelope import Outgoing
from tests.support.worn_client import wear_out

RECORD = Outgoing("topic", b"k", b"v", [])


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[KafkaPublisher]:
    """Yield a publisher without a broker that notices this soon; close it afterwards."""
    monkeypatch.setattr(publisher_module, "SEND_S", 0.5)
    publisher = KafkaPublisher(config=KafkaConfig("127.0.0.1:1"), clock=SystemClock())
    yield publisher
    asyncio.run(publisher.close())


async def answer(publisher: KafkaPublisher) -> Refusal:
    async with asyncio.timeout(60):
        (refusal,) = await publisher.publish([RECORD])
    assert refusal is not None
    return refusal


async def test_a_fatal_error_while_nothing_is_sent_costs_a_client_alone(
    publisher: KafkaPublisher,
) -> None:
    """A fatal error while nothing is sent only costs a client.

    The client raises it from a poll for news. That used to end the thread, and no publish was ever
    answered again.
    """
    worn = publisher._sender._producer
    wear_out(worn)
    async with asyncio.timeout(60):
        while not publisher._sender._broken:  # noqa: ASYNC110 - the thread has no way to notify
            await asyncio.sleep(0.01)
    refusal = await answer(publisher)
    assert publisher._sender._producer is not worn
    assert "fatal" not in (refusal).reason.lower()


async def test_a_fatal_error_under_way_refuses_the_group_and_no_later_one(
    publisher: KafkaPublisher,
) -> None:
    """A fatal error in flight refuses that group of records, and no later one.

    The broken client used to stay in use, and refused all later records.
    """
    sending = asyncio.create_task(answer(publisher))
    await asyncio.sleep(0.2)
    wear_out(publisher._sender._producer)
    first, second = [await sending, await answer(publisher)]

    assert ("the producer had a fatal error" in first.reason, first.permanent) == (True, False)
    assert "fatal" not in second.reason.lower()


def test_a_fatal_error_that_the_client_dropped_is_looked_for_in_the_log(
    publisher: KafkaPublisher,
) -> None:
    """A fatal error that the client dropped is taken from the log.

    A reason such as "returned NULL without setting an exception" helps nobody.
    """
    reason = publisher._sender._note_fatal(
        SystemError("<method 'flush'> returned NULL without setting an exception")
    )

    assert (
        reason == "the producer had a fatal error and is opened anew: the client's log says which"
    )
    assert publisher._sender._broken
