"""One task in one agent: the record that brought it, and where it stands."""

from dataclasses import dataclass, field
from enum import Enum
from math import inf

from agent.lease import Lease
from agent.outcome import Outcome, Spent
from agent.ports import Claimable, Partition, Row
from schemas.envelope import Publication


class State(Enum):
    """Where an entry stands; it changes in the event loop's thread only."""

    ASKING = "asking"  # waits for, or is in, a question without locks
    READY = "ready"  # may be claimed when a slot is free
    CLAIMING = "claiming"  # in a claim call
    RUNNING = "running"  # claimed, its call is under way
    SETTLING = "settling"  # its outcome waits to be durable
    HELD = "held"  # asked about again later
    GONE = "gone"  # finished with, or its partition went


@dataclass(slots=True, eq=False)
class Entry:
    """A record in flight. `value` is dropped while it waits long; the body is then read from the ledger."""

    partition: Partition
    offset: int
    timestamp_ms: int
    publication: Publication
    value: bytes | None
    digest: bytes | None
    route: str
    state: State = State.ASKING
    asks: int = 0
    snoozes: int = 0
    refused_s: float = inf  # when a call for it met AUTH last
    wake_s: float = 0.0
    row: Row | None = None
    owner: int = 0
    lease: Lease | None = None
    claimed_s: float = 0.0
    key: bytes | None = None
    paid: Outcome | None = None  # an answer that was fenced out: the next claim settles it without a call
    spent: Spent = field(default_factory=Spent)  # by the attempt that runs, so far

    @property
    def task_id(self) -> int:
        """Return the task's id, as the header says it."""
        return self.publication.task_id

    @property
    def suspect(self) -> bool:
        """Return whether agents were lost over its task so often that it may be what kills them."""
        return self.row is not None and self.row.suspect

    @property
    def alone(self) -> bool:
        """Return whether nothing may run beside its task."""
        return self.row is not None and self.row.alone

    def pay(self, spent: Spent) -> None:
        """Note what the attempt that runs has spent so far."""
        self.spent = spent

    def leased(self, now_s: float) -> bool:
        """Return whether a call may begin for it: its claim's lease is good."""
        return self.lease is not None and self.lease.good(now_s)

    def claimable(self) -> Claimable:
        """Return what the ledger is asked."""
        return Claimable(self.publication, self.digest)

    def origin(self) -> tuple[str, int, int, int]:
        """Return where the record stood."""
        return self.partition.topic, self.partition.number, self.offset, self.timestamp_ms

    def shed(self) -> None:
        """Drop the body."""
        self.value = None
