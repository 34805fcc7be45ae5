"""The publisher with records that brokers refuse, and beside a busy event loop."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from docllm.producer.bus.kafka.publisher import KafkaPublisher
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import KafkaConfig
from docllm.schemas.task.record.envelope import Outgoing
from tests.contract.support import kafka_parts
from tests.contract.support.bus import Bus, texts
from tests.servers import Kafka
from tests.servers.process import free_port
from tests.support.worn_client import wear_out

RECORDS = 20_000


@asynccontextmanager
async def opened(server: Kafka) -> AsyncIterator[Bus]:
    parts = kafka_parts.parts(server.bootstrap)
    bus = Bus(parts, await parts.admin(), await parts.publisher())
    try:
        await bus.make_topic()
        yield bus
    finally:
        await bus.close()


def test_record_that_only_the_broker_finds_too_large_is_refused_alone(kafka_server: Kafka) -> None:
    """A record that only the broker finds too large is refused for good, and no other."""

    async def run() -> None:
        async with opened(kafka_server) as bus:
            records = [
                bus.record(b"k", value)
                for value in [b"before", os.urandom((4 << 20) + 1000), b"after"]
            ]

            refusals = await bus.publisher.publish(records)
            backlog = await bus.admin.backlog(bus.group, [bus.topic])

            assert [refusal is None for refusal in refusals] == [True, False, True]
            assert refusals[1] is not None
            assert refusals[1].permanent
            assert backlog.lag == 2

    asyncio.run(run())


def test_missing_topic_is_not_the_records_fault(kafka_server: Kafka) -> None:
    """A record for a missing topic is refused temporarily; other topics get theirs."""

    async def run() -> None:
        async with opened(kafka_server) as bus:
            records = [Outgoing(f"{bus.topic}-missing", b"k", b"v", []), bus.record(b"k", b"v")]

            missing, delivered = await bus.publisher.publish(records)

            assert missing is not None
            assert not missing.permanent
            assert delivered is None

    asyncio.run(run())


def test_an_unreachable_kafka_is_reported_in_time() -> None:
    """Without any broker a publish ends within its limit and names the reason."""

    async def run() -> None:
        publisher = KafkaPublisher(
            config=KafkaConfig(f"127.0.0.1:{free_port()}"), clock=SystemClock()
        )
        began_s = time.monotonic()

        (refusal,) = await publisher.publish([Outgoing("t", b"k", b"v", [])])
        took_s = time.monotonic() - began_s
        await publisher.close()

        assert refusal is not None
        assert not refusal.permanent
        assert refusal.reason
        assert took_s < 60

    asyncio.run(run())


def test_busy_event_loop_does_not_starve_the_publisher(kafka_server: Kafka) -> None:
    """While the event loop computes without a pause, records leave more slowly.

    They leave faster than one for each turn of the interpreter's lock.
    """

    async def publishing_s(bus: Bus, *, busy: bool) -> float:
        began_s = time.monotonic()
        publishing = asyncio.create_task(
            bus.publisher.publish([bus.record(b"k%d" % n, b"v" * 300) for n in range(RECORDS)])
        )
        while busy and not publishing.done():
            sum(range(2000))
            await asyncio.sleep(0)
        assert not any(await publishing)
        return time.monotonic() - began_s

    async def run() -> None:
        async with opened(kafka_server) as bus:
            await bus.send(texts(1))
            idle_s = await publishing_s(bus, busy=False)
            busy_s = await publishing_s(bus, busy=True)
            print(f"{RECORDS} records: {idle_s:.2f} s idle, {busy_s:.2f} s busy")  # noqa: T201 - figures

            assert busy_s < RECORDS * sys.getswitchinterval() / 4

    asyncio.run(run())


def test_producer_goes_on_after_a_fatal_error(kafka_server: Kafka) -> None:
    """A fatal error costs a client, not the publisher: a new client sends the next records."""

    async def run() -> None:
        async with opened(kafka_server) as bus:
            await bus.send(texts(10))
            assert isinstance(bus.publisher, KafkaPublisher)
            sender = bus.publisher._sender
            worn = sender._producer

            wear_out(worn)
            await bus.publisher.publish([bus.record(b"k", b"v")])
            await bus.send(texts(10))

            assert sender._producer is not worn

    asyncio.run(run())
