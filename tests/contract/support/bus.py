"""Helpers for the suites of the bus: make a topic, send, listen.

Waits are for facts, never for time alone.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

from docllm.agent.ports import (
    Assigned,
    AtRest,
    Event,
    Partition,
    Record,
    Recreated,
    Revoked,
    Source,
    SourceFailed,
)
from docllm.producer.bus.murmur2 import partition_of
from docllm.producer.ports import Publisher, TopicAdmin
from docllm.schemas.task.record.envelope import Outgoing
from tests.contract.support.parts import Parts

PATIENCE_S = 60.0


@dataclass(eq=False)
class Member:
    """A source and all events that it has delivered."""

    source: Source
    news: asyncio.Event
    events: list[Event] = field(default_factory=list)
    held: dict[tuple[str, int], Partition] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)

    def hear(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, list):
            self.records += event
        elif isinstance(event, Assigned):
            self.held |= {
                (partition.topic, partition.number): partition for partition in event.partitions
            }
        elif isinstance(event, Revoked):
            for partition in event.partitions:
                del self.held[partition.topic, partition.number]
        self.news.set()

    async def until(self, fact: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
        """Return when any member's events have made the fact true."""
        async with asyncio.timeout(within_s):
            while not fact():
                self.news.clear()
                await self.news.wait()

    async def has_read(self, count: int) -> None:
        await self.until(lambda: len(self.records) >= count)

    async def holds(self, count: int, within_s: float = PATIENCE_S) -> None:
        await self.until(lambda: len(self.held) == count, within_s)

    async def obeyed(self) -> AtRest:
        """Return when the handle has obeyed all earlier commands."""
        return await self.source.at_rest()

    def values(self) -> list[bytes]:
        return [record.value or b"" for record in self.records]

    def offsets(self, number: int) -> list[int]:
        return [record.offset for record in self.records if record.partition.number == number]

    def rewinds(self) -> int:
        return sum(isinstance(event, SourceFailed) and event.rewound for event in self.events)

    def recreated(self) -> list[bool]:
        return [event.known for event in self.events if isinstance(event, Recreated)]

    def mark_all(self) -> None:
        ends: dict[Partition, int] = defaultdict(int)
        for record in self.records:
            ends[record.partition] = record.offset + 1
        for partition, end in ends.items():
            self.source.mark(partition, end)


@dataclass
class Bus:
    """One bus, with a topic of four partitions and a group id that nobody else uses."""

    parts: Parts
    admin: TopicAdmin
    publisher: Publisher
    group: str = field(default_factory=lambda: f"g-{uuid4().hex[:8]}")
    topic: str = field(default_factory=lambda: f"t-{uuid4().hex[:8]}")
    members: list[Member] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def make_topic(self) -> None:
        await self.make_again()
        await self.know()

    async def make_again(self) -> None:
        await self.admin.create(self.topic, 4, None)

    async def know(self) -> None:
        """Store the topic's id, as `topics apply` does."""
        descriptions = await self.admin.describe([self.topic])
        self.parts.known[self.topic] = descriptions[self.topic].topic_id

    async def join(self) -> Member:
        member = Member(await self.parts.source([self.topic], self.group), self.news)
        member.source.start(member.hear)
        self.members.append(member)
        return member

    async def kill(self, member: Member) -> None:
        self.members.remove(member)
        await self.parts.kill(member.source)

    async def leave(self, member: Member) -> None:
        self.members.remove(member)
        await member.source.leave()

    async def send(self, values: Sequence[bytes | None], number: int | None = None) -> None:
        """Send values to one partition, or each to the partition of its own text."""
        keys = [value if number is None else key_of(number) for value in values]
        await self.send_records(
            [self.record(key, value) for key, value in zip(keys, values, strict=True)]
        )

    async def send_records(self, records: Sequence[Outgoing]) -> None:
        assert await self.publisher.publish(records) == [None] * len(records)

    def record(
        self, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]] = ()
    ) -> Outgoing:
        return Outgoing(self.topic, key, value, list(headers))

    async def committed(self) -> dict[int, int]:
        backlog = await self.admin.backlog(self.group, [self.topic])
        return {number: offset for (_, number), offset in backlog.committed.items()}

    async def close(self) -> None:
        for member in self.members:
            await member.source.leave()
        await self.publisher.close()
        await self.admin.close()


@asynccontextmanager
async def opened(parts: Parts) -> AsyncIterator[Bus]:
    bus = Bus(parts, await parts.admin(), await parts.publisher())
    try:
        await bus.make_topic()
        yield bus
    finally:
        await bus.close()


def key_of(number: int, partitions: int = 4) -> bytes:
    """Return a key that belongs to a partition."""
    return next(
        key
        for key in (b"key-%d" % n for n in range(1000))
        if partition_of(key, partitions) == number
    )


def texts(count: int, start: int = 0) -> list[bytes]:
    return [b"text-%d" % n for n in range(start, start + count)]
