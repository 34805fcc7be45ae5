"""The port TopicReader: a topic is read from its beginning to its present end.

No group notices the reader.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from docllm.producer.bus.embedded.admin import EmbeddedTopicAdmin
from docllm.producer.bus.embedded.publisher import EmbeddedPublisher
from docllm.producer.bus.embedded.reader import EmbeddedTopicReader
from docllm.producer.bus.kafka.admin import KafkaTopicAdmin
from docllm.producer.bus.kafka.publisher import KafkaPublisher
from docllm.producer.bus.kafka.reader import KafkaTopicReader
from docllm.producer.ports import Incoming, Publisher, TopicAdmin, TopicReader
from docllm.schemas.errors import ConfigError, UnreachableError
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import KafkaConfig
from docllm.schemas.task.record.envelope import Outgoing
from tests.servers.process import free_port

PARTITIONS = 3


@dataclass
class Site:
    """A topic of three partitions."""

    topic: str
    publisher: Publisher
    admin: TopicAdmin
    reader: TopicReader

    async def send(self, *values: bytes | None, key: bytes | None = None) -> None:
        records = [
            Outgoing(self.topic, key or value, value, [("h", b"1"), ("n", b"\xff")])
            for value in values
        ]
        assert await self.publisher.publish(records) == [None] * len(records)

    async def read(self) -> list[Incoming]:
        async with aclosing(self.reader.read(self.topic)) as pages:
            return [record async for page in pages for record in page]


@pytest.fixture(params=["embedded", "kafka"])
def bootstrap(request: pytest.FixtureRequest) -> str | None:
    """The address of Kafka; None for the embedded bus."""
    return (
        None if request.param == "embedded" else request.getfixturevalue("kafka_server").bootstrap
    )


@asynccontextmanager
async def site(bootstrap: str | None, folder: Path) -> AsyncIterator[Site]:
    path, config, clock = folder / "bus.sqlite", KafkaConfig(bootstrap), SystemClock()
    if bootstrap is None:
        opened = Site(
            f"t{uuid4().hex}",
            EmbeddedPublisher(path),
            EmbeddedTopicAdmin(path),
            EmbeddedTopicReader(path),
        )
    else:
        publisher, admin = (
            KafkaPublisher(config=config, clock=clock),
            KafkaTopicAdmin(config=config, clock=clock),
        )
        opened = Site(
            f"t{uuid4().hex}", publisher, admin, KafkaTopicReader(config=config, clock=clock)
        )
    await opened.admin.create(opened.topic, PARTITIONS, None)
    try:
        yield opened
    finally:
        await opened.publisher.close()
        await opened.admin.close()


def values(read: Sequence[Incoming]) -> list[bytes | None]:
    return sorted((record.value for record in read), key=lambda value: value or b"")


async def test_every_record_is_read_once(bootstrap: str | None, tmp_path: Path) -> None:
    """Records of all partitions have key, headers and position; a null stays a null.

    A second reading gives the same.
    """
    async with site(bootstrap, tmp_path) as topic_site:
        sent = [b"v%d" % number for number in range(1200)]
        await topic_site.send(*sent)
        await topic_site.send(None, key=b"pointer")

        read, again = await topic_site.read(), await topic_site.read()

        assert values(read) == values(again)
        assert {record.value for record in read} == {*sent, None}
        assert len(read) == 1201
        assert {record.key for record in read if record.value is not None} == set(sent)
        assert [tuple(record.headers) for record in read[:1]] == [(("h", b"1"), ("n", b"\xff"))]
        assert {record.partition for record in read} == set(range(PARTITIONS))
        for number in range(PARTITIONS):
            offsets = [record.offset for record in read if record.partition == number]
            assert offsets == list(range(len(offsets)))


async def test_the_end_is_where_it_was_at_the_beginning(
    bootstrap: str | None, tmp_path: Path
) -> None:
    """A reading does not wait for records written meanwhile, so it ends."""
    async with site(bootstrap, tmp_path) as topic_site:
        await topic_site.send(*(b"v%d" % number for number in range(600)))
        read: list[Incoming] = []
        async with aclosing(topic_site.reader.read(topic_site.topic)) as pages:
            async for page in pages:
                await topic_site.send(b"later %d" % len(read), key=b"one partition")
                read += page

        assert (
            len(
                [
                    record
                    for record in read
                    if record.value is not None and record.value.startswith(b"v")
                ]
            )
            == 600
        )
        assert not [
            record
            for record in read
            if record.value is not None and record.value.startswith(b"later")
        ]


async def test_an_empty_topic_is_read_at_once(bootstrap: str | None, tmp_path: Path) -> None:
    """An empty topic has nothing to wait for."""
    async with site(bootstrap, tmp_path) as topic_site, asyncio.timeout(60):
        assert await topic_site.read() == []


async def test_reading_begins_at_the_first_remaining_record(
    bootstrap: str | None, tmp_path: Path
) -> None:
    """Deleted records are skipped."""
    async with site(bootstrap, tmp_path) as topic_site:
        await topic_site.send(*(b"v%d" % number for number in range(30)), key=b"one partition")
        (number,) = {record.partition for record in await topic_site.read()}
        await topic_site.admin.trim({(topic_site.topic, number): 10})

        read = await topic_site.read()

        assert [record.offset for record in read] == list(range(10, 30))


async def test_large_records_come_in_small_pages(bootstrap: str | None, tmp_path: Path) -> None:
    """A page holds some MiB at most, however large a record is."""
    async with site(bootstrap, tmp_path) as topic_site:
        for number in range(8):
            await topic_site.send(os.urandom(3 << 20), key=b"%d" % number)

        async with aclosing(topic_site.reader.read(topic_site.topic)) as pages:
            sizes = [sum(len(record.value or b"") for record in page) async for page in pages]

        assert sum(sizes) == 8 * (3 << 20)
        assert max(sizes) <= 7 << 20


async def test_a_topic_that_is_missing_is_named(bootstrap: str | None, tmp_path: Path) -> None:
    """The person has mistyped the topic's name."""
    async with site(bootstrap, tmp_path) as topic_site:
        topic_site.topic = "nowhere.dlq"
        with pytest.raises(ConfigError, match=r"no topic nowhere\.dlq"):
            await topic_site.read()


async def test_a_silent_kafka_is_reported() -> None:
    """The error comes within seconds, with the address."""
    bootstrap = f"127.0.0.1:{free_port()}"
    reader = KafkaTopicReader(config=KafkaConfig(bootstrap), clock=SystemClock())

    with pytest.raises(UnreachableError, match=bootstrap):
        async with aclosing(reader.read("t")) as pages:
            [page async for page in pages]
