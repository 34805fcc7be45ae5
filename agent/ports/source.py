"""The port of one consumer handle."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from docllm.schemas.task.record.envelope import RawHeaders


class Partition(NamedTuple):
    """One assignment of one partition to this agent.

    `epoch` rises at every assignment and never repeats in a process.
    """

    topic: str
    topic_id: str
    number: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it was read. It holds raw bytes; the dispatcher decodes them."""

    partition: Partition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RawHeaders


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions were assigned; their records follow."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    """These partitions were revoked. No record of them follows.

    Marked offsets have been committed, except if the partitions were `lost`.
    """

    partitions: tuple[Partition, ...]
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Recreated:
    """The topic's id differs from the stored id, or equals it again (`known`).

    `topics apply` stores the ids.
    """

    topic: str
    known: bool


@dataclass(frozen=True, slots=True)
class SourceFailed:
    """A problem of the source that a person must know about.

    With `fatal` the source has ended; otherwise it continues by itself.
    """

    reason: str
    fatal: bool = False
    # An offset was missing or out of range: the sweep must look for records that are gone.
    rewound: bool = False


Event = Assigned | Revoked | Recreated | SourceFailed | list[Record]


class Source(Protocol):
    """One consumer handle with its own group membership.

    All methods are called in the event loop's thread. `deliver` is called there too, in the order
    in which events happened. The source reads no further ahead than a small prefetch. A paused
    partition delivers nothing once the paused set has reached the handle.
    """

    def start(self, deliver: Callable[[Event], None]) -> None:
        """Join the group and start to read."""
        ...

    def mark(self, partition: Partition, watermark: int) -> None:
        """Let `watermark`, the next offset to read, be committed within a second.

        It is also committed on revoke and on leave. A mark of an old epoch has no effect.
        """
        ...

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Replace the set of paused partitions; it is applied again after every assignment."""
        ...

    async def commit(self) -> None:
        """Commit the marked offsets now.

        Returns once the broker has answered or the commit has failed. A failed commit is retried
        later.
        """
        ...

    async def at_rest(self) -> "AtRest":
        """Return how far the assigned partitions are from their ends."""
        ...

    def lag(self) -> Mapping[str, int]:
        """Return how many records of the assigned partitions are above their watermarks, by topic.

        The numbers are some seconds old. Nobody is waited for.
        """
        ...

    async def leave(self) -> None:
        """Commit the marks, leave the group, deliver Revoked, close the handle.

        Safe to call twice.
        """
        ...


@dataclass(frozen=True, slots=True)
class AtRest:
    """How far a source is from its end.

    `joined` means that an assignment was received. `lag` counts records of the assigned partitions
    above their committed offsets.
    """

    joined: bool
    lag: int
