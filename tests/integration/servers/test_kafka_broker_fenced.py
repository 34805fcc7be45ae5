"""The only broker is fenced by its controller and answers that there are no brokers.

All clients recover by themselves.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest

from docllm.producer.ports import TopicAdmin
from docllm.schemas.clients.kafka import COMMON
from docllm.schemas.errors import DocllmError
from tests.contract.support import bus as one_bus
from tests.contract.support import kafka_parts
from tests.contract.support.bus import Bus, Member, texts
from tests.integration.servers.test_kafka_outage import (
    PROTOCOLS,
    has_all,
    opened,
    send_until_durable,
    until_answered,
)
from tests.servers.kafka_apart import Broker, Controller

ADMINS = 12  # a client needs an answer at the wrong moment, which one in three gets
# Two members of each group have no partition; about one in four of them gets such an answer.
GROUPS, MEMBERS, PARTITIONS = 4, 6, 4
WELL_S = 240.0
RNG = Random(1)  # noqa: S311 - times of questions


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker apart from its controller."""
    with ExitStack() as running:
        controller = Controller(folder=tmp_path / "controller")
        running.callback(controller.stop)
        controller.start()
        broker = Broker(folder=tmp_path / "broker", controller=controller)
        running.callback(broker.close)
        broker.start()
        yield broker


@pytest.mark.proof
def test_every_client_outlives_a_broker_that_was_fenced(broker: Broker) -> None:
    """Admin clients survive a fenced broker.

    Some agents' admin clients used to be left without brokers, and their sweeps stood still until a
    restart.
    """

    async def run() -> None:
        async with opened(broker) as site:
            admins = [await site.buses[0].parts.admin() for _ in range(ADMINS)]
            over = asyncio.Event()
            asking = [asyncio.create_task(ask_on(admin, site.buses[0], over)) for admin in admins]
            sending = [asyncio.create_task(send_on(bus, over)) for bus in site.buses]
            await asyncio.to_thread(broker.fence)
            over.set()

            async with asyncio.timeout(WELL_S):
                await asyncio.gather(*asking, *sending)
                for admin in admins:
                    await until_answered(
                        partial(admin.backlog, site.buses[0].group, [site.buses[0].topic])
                    )
                for bus, member in zip(site.buses, site.members, strict=True):
                    await send_until_durable(bus, texts(10, start=10))
                    await member.until(
                        partial(has_all, member, 20),
                        within_s=WELL_S,
                    )

    asyncio.run(run())


@pytest.mark.proof
def test_members_without_partitions_outlive_a_fenced_broker_too(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members without partitions survive a fenced broker too.

    They used to lose all brokers for good. When the others left, a group could stand still with two
    members in it.
    """
    # So that all ask while the broker is fenced.
    monkeypatch.setitem(COMMON, "topic.metadata.refresh.interval.ms", 500)

    async def run() -> None:
        async with AsyncExitStack() as running:
            all_parts = [
                kafka_parts.parts(broker.bootstrap, PROTOCOLS[number % 2])
                for number in range(GROUPS)
            ]
            buses = [
                await running.enter_async_context(one_bus.opened(parts)) for parts in all_parts
            ]
            groups = [[await bus.join() for _ in range(MEMBERS)] for bus in buses]
            for group in groups:
                await group[0].until(
                    partial(each_has_one, group),
                    WELL_S,
                )
            idle = [[reader for reader in group if not reader.held] for group in groups]

            await asyncio.to_thread(broker.fence)
            for bus, group, rest in zip(buses, groups, idle, strict=True):
                for member in group:
                    if member not in rest:
                        await bus.leave(member)

            async with asyncio.timeout(WELL_S):
                for rest in idle:
                    await rest[0].until(
                        partial(have_equal_shares, rest),
                        WELL_S,
                    )

    asyncio.run(run())


def each_has_one(group: Sequence[Member]) -> bool:
    """Return whether each partition went to a member of its own."""
    return sum(len(reader.held) == 1 for reader in group) == PARTITIONS


def have_equal_shares(group: Sequence[Member]) -> bool:
    return all(len(reader.held) == PARTITIONS // len(group) for reader in group)


async def ask_on(admin: TopicAdmin, bus: Bus, over: asyncio.Event) -> None:
    """Ask repeatedly, as an agent does."""
    while not over.is_set():
        with suppress(DocllmError):
            await admin.describe([bus.topic])
        await asyncio.sleep(RNG.random())


async def send_on(bus: Bus, over: asyncio.Event) -> None:
    """Send repeatedly."""
    while not over.is_set():
        await bus.publisher.publish([bus.record(b"on", b"on")])
        await asyncio.sleep(RNG.random())
