"""What putting tasks on topics needs of the world, as protocols; adapters are in `publisher/` and `topics/`."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.envelope import Outgoing, RawHeaders


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a record was not delivered. `permanent`: a reason of the record's own (too large, invalid), so that trying again is useless."""

    reason: str
    permanent: bool


class Publisher(Protocol):
    """Writes records to topics. The only way in which anything reaches Kafka."""

    async def publish(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        """Return, for each record in order, None when it is durable or the reason why it is not known to be.

        Returns within the delivery time limit (20 s) whatever the server does; a record whose report says
        "not delivered" may be on the topic all the same.
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
    """A topic as the bus has it. `settings` holds those that the bus tells."""

    topic_id: str
    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Backlog:
    """A consumer group's position on some topics.

    `lag`: records above the committed offsets. `oldest_ms`: the smallest timestamp among the first records not yet
    committed past; None when there is none. `committed`: (topic, partition) to committed offset, where there is one.
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
        """Return the topics that exist."""
        ...

    async def create(self, topic: str, partitions: int, replication_factor: int | None) -> None:
        """Create a topic: no retention limit, LogAppendTime, records of up to 4 MiB. An existing topic is an error."""
        ...

    async def configure(self, topic: str) -> None:
        """Set the settings of an existing topic to what `create` gives."""
        ...

    async def grow(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions."""
        ...

    async def backlog(self, group_id: str, topics: Sequence[str]) -> Backlog:
        """Return the position of a consumer group id; a partition without a committed offset counts from its low watermark."""
        ...

    async def trim(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Delete the records below these offsets; refuse a negative one with ValueError."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class Incoming:
    """One record as it was read, by somebody who belongs to no group."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: RawHeaders


class TopicReader(Protocol):
    """Reads a topic from its beginning to the end that it has when the reading begins. Joins no group, commits nothing."""

    def read(self, topic: str) -> AsyncGenerator[Sequence[Incoming], None]:
        """Yield the records in pages of a few MiB; those of one partition in their order.

        Raises ConfigError when there is no such topic, UnreachableError.
        """
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """A publish order: these items (kind, id, fence) must reach this destination of this group."""

    id: int
    group: str
    destination: str
    items: tuple[tuple[int, int, int], ...]
