"""Kafka is frozen or killed under sources of both protocols and a publisher.

All of them recover by themselves.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from docllm.producer.ports import Refusal
from docllm.schemas.errors import UnreachableError
from tests.contract.support import kafka_parts
from tests.contract.support.bus import Bus, Member, texts
from tests.servers import Kafka

OUTAGE_S = 20.0
PUBLISH_S, LEFT_S = 20.0, 10.0
BUSY_S = 30.0  # an allowance for a busy machine
# A broker that was frozen fences itself first, and must lead the partitions of all earlier tests.
WELL_S = 180.0
PROTOCOLS = ("classic", "consumer")


def freeze(server: Kafka) -> None:
    server.freeze()


def kill(server: Kafka) -> None:
    server.kill()


def bring_back(server: Kafka, outage: Callable[[Kafka], None]) -> None:
    if outage is freeze:
        server.thaw()
    else:
        server.start()


@dataclass
class Site:
    """A group under each protocol, each with a member that has read and committed ten records."""

    buses: list[Bus]
    members: list[Member]


@asynccontextmanager
async def opened(server: Kafka) -> AsyncIterator[Site]:
    site = Site([], [])
    try:
        for protocol in PROTOCOLS:
            parts = kafka_parts.parts(server.bootstrap, protocol)
            bus = Bus(parts, await parts.admin(), await parts.publisher())
            site.buses.append(bus)
            await bus.make_topic()
            await bus.send(texts(10))
            site.members.append(await bus.join())
            await site.members[-1].has_read(10)
            site.members[-1].mark_all()
            await site.members[-1].source.commit()
        yield site
    finally:
        for bus in site.buses:
            await bus.close()


async def send_until_durable(bus: Bus, values: list[bytes]) -> list[float]:
    """Send until every record is durable, as the relay does; return each try's duration."""
    took, records = [], [bus.record(value, value) for value in values]
    while records:
        began_s = time.monotonic()
        refusals = await bus.publisher.publish(records)
        took.append(time.monotonic() - began_s)
        assert not any(refusal.permanent for refusal in refusals if refusal)
        records = [record for record, refusal in zip(records, refusals, strict=True) if refusal]
    return took


@pytest.mark.proof
@pytest.mark.parametrize("outage", [freeze, kill])
def test_an_outage_of_kafka_loses_nothing_and_needs_no_person(
    kafka_server: Kafka, outage: Callable[[Kafka], None]
) -> None:
    """After 20 s without Kafka all records are delivered, read and committed.

    No publish takes longer than 20 s.
    """

    async def run() -> None:
        async with opened(kafka_server) as site:
            outage(kafka_server)
            sending = [
                asyncio.create_task(send_until_durable(bus, texts(50, start=10)))
                for bus in site.buses
            ]
            await asyncio.sleep(OUTAGE_S)
            await asyncio.to_thread(bring_back, kafka_server, outage)
            took = [max(await sender) for sender in sending]
            for member in site.members:
                await member.until(partial(has_all, member, 60), within_s=120)
                await until_at_rest(member)

            await until_well(site.buses[0])

            assert max(took) < PUBLISH_S + BUSY_S
            for bus in site.buses:
                assert (await bus.admin.backlog(bus.group, [bus.topic])).lag == 0

    asyncio.run(run())


async def until_well(bus: Bus) -> None:
    """Wait until the controller serves again, so that the next test finds a healthy Kafka."""
    await until_answered(lambda: bus.admin.create(f"{bus.topic}-{time.monotonic_ns()}", 1, None))


async def until_answered(ask: Callable[[], Awaitable[object]]) -> None:
    """Ask until the brokers answer."""
    end_s = time.monotonic() + WELL_S
    while True:
        try:
            await ask()
        except UnreachableError:
            if time.monotonic() > end_s:
                raise
            await asyncio.sleep(0.5)
        else:
            return


def has_all(member: Member, count: int) -> bool:
    """Return whether a member holds at least these texts."""
    return set(member.values()) >= set(texts(count))


async def until_at_rest(member: Member) -> None:
    async with asyncio.timeout(120):
        while (rest := await member.source.at_rest()).lag or not rest.joined:
            member.mark_all()
            await member.source.commit()


def test_leave_and_publish_end_without_kafka(kafka_server: Kafka) -> None:
    """While Kafka is frozen, a member leaves within seconds and reports its partitions lost.

    A publish ends in time, with a temporary error.
    """

    async def run() -> None:
        async with opened(kafka_server) as site:
            kafka_server.freeze()
            try:
                publishing = asyncio.create_task(
                    site.buses[0].publisher.publish([site.buses[0].record(b"k", b"v")])
                )
                began_s = time.monotonic()
                for bus, member in zip(site.buses, site.members, strict=True):
                    member.source.mark(next(iter(member.held.values())), 1)
                    await bus.leave(member)
                left_s = time.monotonic() - began_s
                (refusal,) = await publishing
                published_s = time.monotonic() - began_s
            finally:
                kafka_server.thaw()
                await until_well(site.buses[0])

            assert left_s < 2 * LEFT_S + BUSY_S
            assert [member.held for member in site.members] == [{}, {}]
            assert isinstance(refusal, Refusal)
            assert not refusal.permanent
            assert published_s < PUBLISH_S + BUSY_S

    asyncio.run(run())
