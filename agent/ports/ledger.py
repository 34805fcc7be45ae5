"""The port of the ledger: claims, settles, quarantine and dead letters that come back."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from docllm.agent.ports.outcome import Outcome
from docllm.producer.ports import Order
from docllm.schemas.task.line.overrides import Overrides
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.record.lanes import Lane
from docllm.schemas.task.record.rejected_record import RejectedRecord

# Number of lost agents at which a task becomes a crash suspect, and at which it runs alone, which
# shows whether it is guilty.
SUSPECT_LOSSES = 2
ALONE_LOSSES = 3


@dataclass(slots=True)
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


@dataclass(slots=True)
class Row:
    """A task's row as the claim reads it back.

    `counted_before` is how many of its attempts have counted. `lease_losses` is how many agents
    were lost over it since, and `losses` how many ever. `due_in_s` is by the database's clock.
    """

    task_id: int
    task_key: bytes
    batch_id: int
    status: int
    owner: int
    fence: int
    counted_before: int
    max_attempts: int
    lease_losses: int
    due_in_s: float
    expired: bool
    type: str
    batch: str
    cancelled: bool = False  # whether its batch is cancelled
    tenant: str = ""
    routes_allowed: tuple[str, ...] | None = None  # by its batch; the task's line wins
    lane: Lane = Lane.NORMAL
    depth: int = 0  # how many ancestors it has
    changed: bool = False  # whether replays have changed what it runs with
    join_role: int = 0  # a JoinRole
    output_uri: str = ""  # where its batch sends results; the task's line wins
    losses: int = 0

    @property
    def key_text(self) -> str:
        """The task's key, for a person."""
        return self.task_key.decode(errors="backslashreplace")

    @property
    def suspect(self) -> bool:
        """Whether the task may kill agents; an agent runs one such task at a time."""
        return self.lease_losses >= SUSPECT_LOSSES

    @property
    def runs_alone(self) -> bool:
        """Whether the task must run alone: if its agent is lost too, the task is guilty."""
        return self.lease_losses >= ALONE_LOSSES


@dataclass(slots=True)
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
    SUPERSEDED = "superseded"  # the claim no longer belongs to this owner; nothing was written
    GIVEN_UP = "given up"  # this row cannot be written; its claim lasts until its time is over


ClaimAnswers = dict[int, tuple[ClaimAnswer, Row | None]]


class Ledger(Protocol):
    """The database as the path of a record uses it. Each call is retried until it succeeds.

    Each call is a transaction, except that on a server the statements of `ask` and `claim` commit
    one by one.
    """

    async def ask(self, records: Sequence[Claimable]) -> ClaimAnswers:
        """Answer for records that may be waiting, without a lock."""
        ...

    async def claim(
        self,
        records: Sequence[Claimable],
        owner: int,
        claim_s: float,
        *,
        with_suspects: bool = False,
    ) -> ClaimAnswers:
        """Claim free tasks under `owner` until `claim_s` from now; answer for every record.

        `records` must have each task id only once. Without `with_suspects`, tasks over which
        agents were lost are not claimed, because they could take the other tasks with them.
        """
        ...

    async def bodies(self, task_ids: Sequence[int]) -> dict[int, tuple[bytes, bytes]]:
        """Return key and value of tasks whose records were kept without bodies."""
        ...

    async def overrides(self, task_ids: Sequence[int]) -> dict[int, Overrides]:
        """Return what replays have put in the place of fields of these tasks' lines."""
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
        """Return whether a task may join the look of the guard that holds it back."""
        ...

    async def quarantine(self, records: Sequence[RejectedRecord]) -> list[Order]:
        """Store records that name no trustworthy task; return orders for their dead letters."""
        ...


class Letters(Protocol):
    """The dead letters that other people's tools write back to the group's topics."""

    async def without_letters(self, records: Sequence[RejectedRecord]) -> list[RejectedRecord]:
        """Take the dead letters of the ledger's tasks; return the other records.

        A letter that was taken is finished: its task is replayed, or left as it is.
        """
        ...

    async def take_lines(self, digests: Collection[bytes], topic: str) -> Collection[bytes]:
        """Take the letters that came back to `topic` without headers; return their digests.

        The other digests belong to lines of no task that has died.
        """
        ...
