"""The one-page map: what the agent's loop needs of the world, as protocols.

Adapters implement them, fakes stand in for them in simulation, and one contract suite per port holds for all.
`Publisher` and `TopicAdmin` live with their users in `producer/ports.py` and are named here for the map's sake.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from agent.outcome import Outcome
from producer.ports import Backlog, Order, Publisher, Refusal, TopicAdmin, TopicState
from producer.quarantine import Suspect
from schemas.clock import Clock
from schemas.envelope import Publication, RawHeaders

__all__ = [
    "LLM", "Account", "Answer", "Answers", "Assigned", "AtRest", "Backlog", "Call", "CallFailed", "Claimable", "Clock", "Event",
    "Ledger", "Order", "Partition", "Publisher", "Record", "Recreated", "Refusal", "Reply", "Revoked", "Row", "Settlement", "Source",
    "SourceFailed", "Suspect", "TopicAdmin", "TopicState", "Verdict",
]  # fmt: skip


# ---- Source: one consumer handle


@dataclass(frozen=True, slots=True)
class Partition:
    """One assignment of one partition to this agent: `epoch` rises at every assignment and never repeats in a process."""

    topic: str
    topic_id: str
    number: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it was read: raw bytes; decoding is the loop's."""

    partition: Partition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RawHeaders


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions came; their records follow."""

    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    """These partitions went; what was marked has been committed (not when `lost`). No record of them follows."""

    partitions: tuple[Partition, ...]
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Recreated:
    """The topic has another id than `topics apply` stored (`known` False), or is well again (`known` True)."""

    topic: str
    known: bool


@dataclass(frozen=True, slots=True)
class SourceFailed:
    """Something a person must know (`fatal` False: goes on by itself), or the end of the source (`fatal` True)."""

    reason: str
    fatal: bool = False
    rewound: bool = False  # an offset was missing or out of range: the sweep must look for records that are gone


Event = Assigned | Revoked | Recreated | SourceFailed | list[Record]


class Source(Protocol):
    """One consumer handle with its own group membership. All methods are called in the event loop's thread.

    `deliver` is called in the event loop's thread too, in the order in which things happened. Nothing is read
    further than a small prefetch; a partition in the paused set delivers nothing once the set has reached the handle.
    """

    def start(self, deliver: Callable[[Event], None]) -> None:
        """Join the group and begin to read."""
        ...

    def mark(self, partition: Partition, watermark: int) -> None:
        """Let `watermark`, the next offset to read, be committed: within a second, on revoke and on leave.

        A mark of an old epoch is void.
        """
        ...

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Replace the set of partitions that shall not be read; it is applied again after every assignment."""
        ...

    async def commit(self) -> None:
        """Commit now what was marked; return when the broker has answered or the commit has failed (it is tried again later)."""
        ...

    async def at_rest(self) -> "AtRest":
        """Return how far the assigned partitions are from their ends."""
        ...

    async def leave(self) -> None:
        """Commit what was marked, leave the group, deliver Revoked, close the handle. Safe to call twice."""
        ...


@dataclass(frozen=True, slots=True)
class AtRest:
    """`joined`: an assignment was received. `lag`: records of the assigned partitions above their committed offsets."""

    joined: bool
    lag: int


# ---- Ledger: claims, settles, leases

SUSPECT_LOSSES, ALONE_LOSSES = 2, 3  # lost agents, from which on a task may be what kills them, and runs alone to prove it


@dataclass(frozen=True, slots=True)
class Claimable:
    """A record as the claim sees it; `digest` is None where the agent keeps no body (it was compared when the record came)."""

    publication: Publication
    digest: bytes | None


class Answer(Enum):
    """What the ledger says of a record that was asked about."""

    CLAIMED = "claimed"
    CLAIMABLE = "claimable"  # by the question without locks only: waiting, due, and the fence fits
    DONE = "done"
    STALE = "stale"
    HELD = "held"
    EARLY = "early"
    AGAIN = "again"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Row:
    """What the claim reads back of a task. `due_in_s` is measured by the database's clock."""

    task_id: int
    batch_id: int
    status: int
    owner: int
    fence: int
    attempt: int
    max_attempts: int
    lease_losses: int
    replays: int
    due_in_s: float
    expired: bool
    type: str
    task_key: bytes
    batch: str
    cancelled: bool = False  # its batch

    @property
    def suspect(self) -> bool:
        """Return whether it may be what kills agents: one such task at a time runs in an agent."""
        return self.lease_losses >= SUSPECT_LOSSES

    @property
    def alone(self) -> bool:
        """Return whether nothing may run beside it: if its agent is lost again, it is known why."""
        return self.lease_losses >= ALONE_LOSSES


@dataclass(frozen=True, slots=True)
class Settlement:
    """One outcome to be made durable under the claim's owner."""

    row: Row
    owner: int
    outcome: Outcome
    route: str
    origin: tuple[str, int, int, int]  # topic, partition, offset, timestamp in ms of the record that was claimed


class Verdict(Enum):
    """What became of one settlement."""

    SETTLED = "settled"  # accepted now, or by an earlier try whose answer was lost
    HELD_BACK = "held back"  # accepted, but its task waits in a tier instead of dying: a guard is raised
    REOPENED = "reopened"  # accepted, but its task waits again instead of being cancelled: its batch is open
    FENCED = "fenced"  # the claim is no longer this owner's: nothing was written
    GIVEN_UP = "given up"  # this row cannot be written: its claim is left to the hard deadline


Answers = dict[int, tuple[Answer, Row | None]]


class Ledger(Protocol):
    """The database, as the loop uses it. Each call is a transaction that is run again until the server answers."""

    async def ask(self, records: Sequence[Claimable]) -> Answers:
        """Answer for records that may be waiting, without a lock."""
        ...

    async def claim(self, records: Sequence[Claimable], owner: int, deadline_s: float, *, suspects: bool = False) -> Answers:
        """Take what can be taken under `owner` until `deadline_s` from now; answer for all. One record for each task id.

        Without `suspects` a task is left that agents were lost over: it would be lost with the others, or they with it.
        """
        ...

    async def bodies(self, task_ids: Sequence[int]) -> dict[int, tuple[bytes, bytes]]:
        """Return key and value of tasks whose records were kept without them."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[list[Verdict], list[Order]]:
        """Make outcomes durable; return a verdict for each, and the publish orders that were written."""
        ...

    async def release(self, owner: int, task_ids: Sequence[int]) -> None:
        """Give claims back."""
        ...

    async def relieve(self, record: Claimable, fence: int, owner: int | None) -> Order | None:
        """Order another record for a task that runs under this owner, or waits (None), at this fence; None when it does not.

        None too when the record has another value than the task that it names.
        """
        ...

    async def quarantine(self, suspects: Sequence[Suspect]) -> list[Order]:
        """Keep records that name no task that we can trust; return the orders for their letters."""
        ...


# ---- LLM


@dataclass(frozen=True, slots=True)
class Call:
    """One chat completion: the JSON body to post, the request id to send, and the time it may take in all."""

    body: bytes
    request_id: str
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Reply:
    """What the provider answered, whatever the status. Header names are lower case. `cut`: an error's body did not come to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool = False


@dataclass(frozen=True, slots=True)
class CallFailed:
    """No whole answer came.

    `error_class` is NETWORK or AUTH (nothing was sent; a proxy asks for a password), AMBIGUOUS (may have been billed) or
    REPLY_TOO_LARGE.
    """

    error_class: str
    text: str


class LLM(Protocol):
    """One provider account."""

    async def complete(self, call: Call) -> Reply | CallFailed:
        """Make the call; every failure is a value. Cancelling it ends it at once."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class Account:
    """With what the calls of one route are made. `model`: where a task names none; None: the provider's choice."""

    llm: LLM
    model: str | None
    timeout_s: float
