"""The protocols that the producer needs to put tasks on topics.

Their adapters are in `producer/bus/kafka` and `producer/bus/embedded`.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from docllm.schemas.task.record.envelope import Outgoing, RawHeaders

DELIVERY_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a record was not delivered.

    `permanent`: the record itself is the cause (too large, invalid), so a retry cannot succeed.
    """

    reason: str
    permanent: bool


class Publisher(Protocol):
    """Writes records to topics. This is the only way in which anything reaches Kafka."""

    async def publish(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        """Return, for each record in order, None when it is durable, or why it may not be.

        Returns within DELIVERY_LIMIT_S whatever the server does. A record that is
        reported as not delivered may still be on the topic.
        """
        ...

    def waiting(self) -> int:
        """Return how many records are in the local queue."""
        ...

    async def close(self) -> None:
        """Flush and close."""
        ...


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the bus has it. `settings` holds the settings that the bus reveals."""

    topic_id: str
    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Backlog:
    """A consumer group's position on some topics.

    `lag`: the number of records above the committed offsets. `oldest_ms`: the smallest timestamp
    among the first uncommitted records, None when there is no such record. `committed`: the
    committed offset by (topic, partition), where there is one.
    """

    lag: int
    oldest_ms: int | None
    committed: Mapping[tuple[str, int], int]


class TopicAdmin(Protocol):
    """Topics, and the positions of groups on them."""

    async def cluster_id(self) -> str:
        """Return the id of the cluster; for the embedded bus, of its file."""
        ...

    async def describe(self, topics: Sequence[str]) -> dict[str, TopicState]:
        """Return the state of each given topic that exists."""
        ...

    async def create(self, topic: str, partitions: int, replication_factor: int | None) -> None:
        """Create a topic: no retention limit, LogAppendTime, records of up to 4 MiB.

        Dead letters are compressed by gzip. Raises an error if the topic exists.
        """
        ...

    async def configure(self, topic: str) -> None:
        """Set the settings of an existing topic to those that `create` gives."""
        ...

    async def grow(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions."""
        ...

    async def backlog(self, group_id: str, topics: Sequence[str]) -> Backlog:
        """Return the position of a consumer group id.

        A partition without a committed offset counts from its low watermark.
        """
        ...

    async def trim(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Delete the records below these offsets; raise ValueError for a negative one."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class Incoming:
    """One record that was read by a reader outside any group."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: RawHeaders


class TopicReader(Protocol):
    """Reads a topic from its beginning to its end at the time of the call.

    Joins no group and commits nothing.
    """

    def read(self, topic: str) -> AsyncGenerator[Sequence[Incoming], None]:
        """Yield the records in pages of a few MiB; the records of one partition keep their order.

        Raises ConfigError when the topic does not exist, UnreachableError.
        """
        ...


class Item(NamedTuple):
    """A record that an order asks for: of a task or a quarantined record, by `kind`."""

    kind: int
    id: int
    fence: int


@dataclass(frozen=True, slots=True)
class Order:
    """A publish order: these items must reach this destination of this group."""

    id: int
    group: str
    destination: str
    items: tuple[Item, ...]
