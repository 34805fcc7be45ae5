"""The controller takes the only broker for lost, which answers meanwhile that there are no brokers; all clients go on by themselves."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

import pytest

from producer.topics.kafka import KafkaTopicAdmin
from schemas.errors import DocllmError
from schemas.kafka_client import COMMON
from tests.contract import kafka_parts
from tests.contract.bus import Bus, texts
from tests.contract.parts import Parts
from tests.integration.test_kafka_outage import PROTOCOLS, opened, send_until_durable
from tests.servers.kafka_apart import Broker, Controller

ADMINS = 12  # it takes an answer at the wrong moment, which one in three has
GROUPS, MEMBERS, PARTITIONS = 4, 6, 4  # two of each group hold nothing; about one in four of them has such an answer
WELL_S = 90.0
RNG = Random(1)  # noqa: S311 - times of questions


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker apart from its controller."""
    with ExitStack() as running:
        controller = Controller(folder=tmp_path / "controller")
        running.callback(controller.stop)
        controller.start()
        broker = Broker(folder=tmp_path / "broker", controller=controller)
        running.callback(broker.kill)  # in order it would wait for its controller
        broker.start()
        yield broker


def fence(broker: Broker) -> None:
    with broker.fenced():
        pass


@pytest.mark.proof
def test_every_client_outlives_a_broker_that_was_fenced(broker: Broker) -> None:
    """The admin client of some agents was left without brokers, and their sweeps stood still until somebody started them again."""

    async def run() -> None:
        async with opened(broker) as site:
            admins = [await site.buses[0].parts.admin() for _ in range(ADMINS)]
            over = asyncio.Event()
            asking = [asyncio.create_task(ask_on(admin, site.buses[0], over)) for admin in admins]
            sending = [asyncio.create_task(send_on(bus, over)) for bus in site.buses]
            await asyncio.to_thread(fence, broker)
            over.set()

            async with asyncio.timeout(WELL_S):
                await asyncio.gather(*asking, *sending)
                for admin in admins:
                    await until_well(lambda admin=admin: admin.backlog(site.buses[0].group, [site.buses[0].topic]))
                for bus, member in zip(site.buses, site.members, strict=True):
                    await send_until_durable(bus, texts(10, start=10))
                    await member.until(lambda member=member: set(member.values()) >= set(texts(20)), within_s=WELL_S)

    asyncio.run(run())


@pytest.mark.proof
def test_members_that_hold_nothing_outlive_it_too(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """They had lost all brokers for good: when the others left, a group could stand still with two members in it."""
    monkeypatch.setitem(COMMON, "topic.metadata.refresh.interval.ms", 500)  # so that all ask while the broker is fenced

    async def run() -> None:
        buses = [Bus(parts, await parts.admin(), await parts.publisher()) for parts in each_protocol(broker)]
        for bus in buses:
            await bus.make_topic()
        groups = [[await bus.join() for _ in range(MEMBERS)] for bus in buses]
        await until(lambda: all(sum(len(one.held) == 1 for one in group) == PARTITIONS for group in groups))
        idle = [[one for one in group if not one.held] for group in groups]

        await asyncio.to_thread(fence, broker)
        for bus, group, rest in zip(buses, groups, idle, strict=True):
            for member in group:
                if member not in rest:
                    await bus.leave(member)

        await until(lambda: all(len(one.held) == PARTITIONS // len(rest) for rest in idle for one in rest))
        for bus in buses:
            await bus.close()

    asyncio.run(run())


def each_protocol(broker: Broker) -> list[Parts]:
    return [kafka_parts.parts(broker.bootstrap, PROTOCOLS[number % 2]) for number in range(GROUPS)]


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(WELL_S):
        while not fact():  # noqa: ASYNC110 - the groups tell nobody
            await asyncio.sleep(0.2)


async def ask_on(admin: KafkaTopicAdmin, bus: Bus, over: asyncio.Event) -> None:
    """Ask again and again, as an agent does."""
    while not over.is_set():
        with suppress(DocllmError):
            await admin.describe([bus.topic])
        await asyncio.sleep(RNG.random())


async def send_on(bus: Bus, over: asyncio.Event) -> None:
    """Send again and again."""
    while not over.is_set():
        await bus.publisher.publish([bus.record(b"on", b"on")])
        await asyncio.sleep(RNG.random())


async def until_well(ask: Callable[[], Awaitable[object]]) -> None:
    """Return once there was an answer."""
    while True:
        with suppress(DocllmError):
            await ask()
            return
        await asyncio.sleep(0.2)
