"""The protocols through which the agent's loop uses the outside world, on one page.

Adapters implement them, simulations replace them by fakes, and one contract suite for each port
runs against all of them. `Publisher` and `TopicAdmin` live with their users in `producer/ports.py`
and are named here to complete the page.

Tested by tests/contract/test_ledger_claim.py and tests/contract/test_source.py.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from agent.outcome import Outcome
from producer.ports import Backlog, Order, Publisher, Refusal, TopicAdmin, TopicState
from schemas.runtime.clock import Clock
from schemas.settings.config import Structured
from schemas.task.envelope import Publication, RawHeaders
from schemas.task.failures import ErrorClass
from schemas.task.lanes import Lane
from schemas.task.rejected_record import RejectedRecord

__all__ = [
    "LLM",
    "Assigned",
    "AtRest",
    "Backlog",
    "Call",
    "CallFailed",
    "ClaimAnswer",
    "ClaimAnswers",
    "Claimable",
    "Clock",
    "Event",
    "Ledger",
    "Order",
    "Partition",
    "Publisher",
    "Record",
    "Recreated",
    "Refusal",
    "RejectedRecord",
    "Reply",
    "Revoked",
    "RouteClient",
    "Row",
    "Settlement",
    "Source",
    "SourceFailed",
    "TopicAdmin",
    "TopicState",
    "Verdict",
]  # fmt: skip


# ---- Source: one consumer handle


@dataclass(frozen=True, slots=True)
class Partition:
    """One assignment of one partition to this agent.

    `epoch` rises at every assignment and never repeats in a process.
    """

    topic: str
    topic_id: str
    number: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it was read. It holds raw bytes; the loop decodes them."""

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


# ---- Ledger: claims, settles, leases

# Number of lost agents at which a task becomes a crash suspect, and at which it runs alone, which
# shows whether it is guilty.
SUSPECT_LOSSES = 2
ALONE_LOSSES = 3


@dataclass(frozen=True, slots=True)
class Claimable:
    """A record as the claim sees it.

    `digest` is None if the agent keeps no body; it was compared when the record was read.
    """

    publication: Publication
    digest: bytes | None


class ClaimAnswer(Enum):
    """The ledger's answer about a record."""

    CLAIMED = "claimed"
    # Only from `ask`, the query without locks: the task waits, is due, and the fence fits.
    CLAIMABLE = "claimable"
    DONE = "done"
    STALE = "stale"
    HELD = "held"
    EARLY = "early"
    AGAIN = "again"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Row:
    """A task's row as the claim reads it back; `due_in_s` is by the database's clock."""

    task_id: int
    batch_id: int
    status: int
    owner: int
    fence: int
    attempt: int
    max_attempts: int
    lease_losses: int
    due_in_s: float
    expired: bool
    type: str
    task_key: bytes
    batch: str
    cancelled: bool = False  # whether its batch is cancelled
    tenant: str = ""
    routes_allowed: tuple[str, ...] | None = None  # by its batch; the task's line wins
    lane: Lane = Lane.NORMAL
    depth: int = 0  # how many ancestors it has
    output_uri: str = ""  # where its batch sends results; the task's line wins

    @property
    def key_text(self) -> str:
        """Return the task's key, for a person."""
        return self.task_key.decode(errors="backslashreplace")

    @property
    def suspect(self) -> bool:
        """Return whether the task may kill agents; an agent runs one such task at a time."""
        return self.lease_losses >= SUSPECT_LOSSES

    @property
    def alone(self) -> bool:
        """Return whether the task must run alone: if its agent is lost too, the task is guilty."""
        return self.lease_losses >= ALONE_LOSSES


@dataclass(frozen=True, slots=True)
class Settlement:
    """One outcome to be made durable under the claim's owner."""

    row: Row
    owner: int
    outcome: Outcome
    route: str
    # Topic, partition, offset, timestamp in ms of the claimed record.
    origin: tuple[str, int, int, int]


class Verdict(Enum):
    """The result of one settlement."""

    SETTLED = "settled"  # accepted as it is, now or by an earlier try whose answer was lost
    # Accepted, but a guard is raised, so the task waits in a tier and does not die.
    HELD_BACK = "held back"
    # Accepted, but its batch is open again, so the task waits and is not cancelled.
    REOPENED = "reopened"
    CANCELLED = "cancelled"  # accepted, but its batch is cancelled, so the task does not wait
    # Accepted, but as a counted failure: the task had too many uncounted ends.
    RETRIED = "retried"  # it waits in the longest tier
    DIED = "died"  # it died: its attempts are used up, or the id of a follow-up is taken
    FENCED = "fenced"  # the claim no longer belongs to this owner; nothing was written
    GIVEN_UP = "given up"  # this row cannot be written; its claim is left to the hard deadline


ClaimAnswers = dict[int, tuple[ClaimAnswer, Row | None]]


class Ledger(Protocol):
    """The database as the loop uses it. Each call is retried until it succeeds.

    Each call is a transaction, except that on a server the statements of `ask` and `claim` commit
    one by one.
    """

    async def ask(self, records: Sequence[Claimable]) -> ClaimAnswers:
        """Answer for records that may be waiting, without a lock."""
        ...

    async def claim(
        self, records: Sequence[Claimable], owner: int, deadline_s: float, *, suspects: bool = False
    ) -> ClaimAnswers:
        """Claim free tasks under `owner` until `deadline_s` from now; answer for every record.

        `records` must have each task id only once. Without `suspects`, tasks over which agents were
        lost are not claimed, because they could take the other tasks with them.
        """
        ...

    async def bodies(self, task_ids: Sequence[int]) -> dict[int, tuple[bytes, bytes]]:
        """Return key and value of tasks whose records were kept without bodies."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[list[Verdict], list[Order]]:
        """Make outcomes durable; return a verdict for each, and the publish orders written."""
        ...

    async def relieve(self, record: Claimable, fence: int, owner: int | None) -> Order | None:
        """Order a replacement record for a task, for head-of-line relief.

        The task must run under `owner`, or wait (`owner` None), at this fence. Returns None if it
        does not, or if the record's value differs from that of the task that it names.
        """
        ...

    async def join_look(self, guard_id: int, task_id: int) -> bool:
        """Return whether a task may join the look of the guard that stops it."""
        ...

    async def quarantine(self, records: Sequence[RejectedRecord]) -> list[Order]:
        """Store records that name no trustworthy task; return orders for their dead letters."""
        ...


class Letters(Protocol):
    """The dead letters that other people's tools write back to the group's topics."""

    async def take(self, records: Sequence[RejectedRecord]) -> list[RejectedRecord]:
        """Take the dead letters of the ledger's tasks; return the other records.

        A letter that was taken is finished: its task is replayed, or left as it is.
        """
        ...

    async def take_lines(self, digests: Collection[bytes], topic: str) -> Collection[bytes]:
        """Take the letters that came back to `topic` without headers; return their digests.

        The other digests belong to lines of no task that has died.
        """
        ...


# ---- LLM


@dataclass(frozen=True, slots=True)
class Call:
    """One chat completion: the JSON body, the request id to send, and the total time limit.

    `traceparent` names the call's span, for the provider; empty for none.
    """

    body: bytes
    request_id: str
    timeout_s: float
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """The provider's answer, whatever its status.

    Header names are lower case. `cut` means that an error's body did not arrive completely, and
    `unversioned` that the refusing address names no version, such as `/v1`.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool = False
    unversioned: bool = False


@dataclass(frozen=True, slots=True)
class CallFailed:
    """No complete answer arrived.

    `error_class` is one of: NETWORK (nothing was sent), AUTH (nothing was sent, as a proxy asks for
    a password), AMBIGUOUS (the call may have been billed), or REPLY_TOO_LARGE.
    """

    error_class: ErrorClass
    text: str


class LLM(Protocol):
    """One provider account."""

    async def complete(self, call: Call) -> Reply | CallFailed:
        """Make the call. Every failure is a return value. A cancel ends the call at once."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class RouteClient:
    """What calls one route: an LLM client, the model and the time limit.

    `model` is for tasks that name no model; None leaves the choice to the provider. `structured` is
    the form in which the server takes a schema. `context_tokens` is how many tokens the model
    takes, None if unknown.
    """

    llm: LLM
    model: str | None
    timeout_s: float
    structured: Structured = Structured.JSON_SCHEMA
    context_tokens: int | None = None
