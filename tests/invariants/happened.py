"""What happened during a run, as values: the history of rows, records and commits.

It also has how the run's programs fared. `order` numbers events of all kinds in the order in which
they happened. It is a count if one process sees all events, else a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from docllm.schemas.task.states import Status


@dataclass(frozen=True, slots=True)
class Replayed:
    """An item of a replay run: the death of a task, by its fence, that a person replays.

    `applied`: the run says that it applied the item. `waits`: the item is still to come.
    """

    run_id: int
    task_id: int
    fence: int
    applied: bool = True
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """What has happened to a batch since it was archived.

    `sent`: records of its tasks that arrived again. `called`, `moved`: tasks that were called, or
    whose rows changed. `quarantined`: those records that were. `left`: rows that a purge left.
    """

    sent: int = 0
    called: Sequence[str] = ()
    quarantined: int = 0
    moved: Sequence[int] = ()
    left: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """One change of a task's row.

    `before` is None when the row was written for the first time. `at_s` and `old_due_s` are the
    database's time, `clock_s` is the run's. `losses`, `attempts` and `replays`: by how much they
    rose.
    """

    order: float
    at_s: float
    clock_s: float
    task_id: int
    before: Status | None
    after: Status
    old_owner: int
    owner: int
    old_fence: int
    fence: int
    old_due_s: float
    losses: int = 0
    attempts: int = 0
    replays: int = 0

    def __str__(self) -> str:
        before = "nothing" if self.before is None else self.before.name
        return (
            f"task {self.task_id} at {self.clock_s:.3f}: {before} of {self.old_owner} -> "
            f"{self.after.name} of {self.owner}"
        )

    @property
    def claims(self) -> bool:
        """Return whether an owner took the task."""
        return self.after is Status.PROCESSING and self.before is not Status.PROCESSING

    @property
    def ends(self) -> bool:
        """Return whether a claim ended here: settled, released or cancelled."""
        return self.old_owner != 0 and self.owner == 0


@dataclass(frozen=True, slots=True)
class Join:
    """A join and its siblings. `waits`: it may run only when all of them have succeeded.

    `turn`: the moves of one transaction have orders between two multiples of this.
    """

    task_id: int
    siblings: Sequence[int]
    waits: bool
    turn: int


@dataclass(frozen=True, slots=True)
class Count:
    """A row of the tally, when it was written."""

    order: float
    at_s: float
    batch_id: int
    type: str
    route: str
    state: Status
    disposition: str
    delta: int
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class Ordered:
    """An item of a publish order, and its time in the outbox.

    `gone` is None if it still is in the outbox.
    """

    task_id: int
    fence: int
    placed: float
    gone: float | None


@dataclass(frozen=True, slots=True)
class Guarded:
    """A guard, and the time while it was raised.

    `opened` is None if it still is raised. `route` is empty if it applies to every route. `tried`
    has the time of each task that went in one of its looks.
    """

    batch_id: int
    type: str
    route: str
    raised: float
    opened: float | None
    cause: str = ""
    tried: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class DeclaredLost:
    """An agent was declared lost.

    `silent_s` is the time since its last heartbeat, by the database's clock. `clock_s` is the run's
    time.
    """

    order: float
    clock_s: float
    agent_id: int
    silent_s: float


@dataclass(frozen=True, slots=True)
class Stored:
    """A record of a topic, and when it was written.

    `task_id` and `fence` come from its headers; `task_id` is None for a foreign record. `kept`:
    when it came into the quarantine. `known`: when its bytes became a task's input; of a dead
    letter, when its task or its quarantined record came. `lost`: when the bus lost it, by a fault.
    """

    topic: str
    number: int
    offset: int
    order: float
    task_id: int | None = None
    fence: int = 0
    kept: float | None = None
    known: float | None = None
    lost: float | None = None


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset that a consumer group committed: the next record to read."""

    order: float
    topic: str
    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class Claim:
    """What the ledger said of a task when a call for it began, and which program called.

    `expired`, `cancelled`: the task's deadline had passed, or its batch was cancelled, when it was
    claimed. `known`: the program knew the task's type.
    """

    program: str
    status: Status
    owner: int
    expired: bool = False
    cancelled: bool = False
    known: bool = True


@dataclass(frozen=True, slots=True)
class Outage:
    """A time of the run's clock in which every call that began on a route failed alike."""

    route: str
    error_class: str
    from_s: float
    to_s: float

    def until(self, to_s: float) -> "Outage":
        """Return the outage, cut off at `to_s` if it still lasted then."""
        return replace(self, to_s=min(self.to_s, to_s))


@dataclass(frozen=True, slots=True)
class Incarnation:
    """An agent's incarnation. Times are of the run's clock.

    `lost` and `gone`: the order in which the ledger knew its end. `stalls`: when its program stood
    still. `beat_stalls`: when its heartbeat did. `served`: the database answered it all the time.
    `served_at_once`: it also answered without delay. `asked_s`: when it was asked to leave.
    """

    agent_id: int
    program: str
    began_s: float = 0.0
    asked_s: float | None = None
    ended_s: float | None = None
    lost: float | None = None
    gone: float | None = None
    stalls: Sequence[tuple[float, float]] = ()
    beat_stalls: Sequence[tuple[float, float]] = ()
    served: bool = True
    served_at_once: bool = True

    def stood_still(self, from_s: float, to_s: float) -> bool:
        """Return whether the program stood still at some time between these two."""
        return any(begin <= to_s and end >= from_s for begin, end in self.stalls)

    def beat(self, from_s: float, to_s: float) -> bool:
        """Return whether its heartbeat ran all the time between these two."""
        return self.ran(to_s) and not any(
            begin <= to_s and end >= from_s for begin, end in self.beat_stalls
        )

    def ran(self, at_s: float) -> bool:
        """Return whether the program had not ended by then."""
        return self.ended_s is None or self.ended_s > at_s


@dataclass(frozen=True, slots=True)
class LockUse:
    """A handler used what a lock guards, in the order of these uses."""

    lock: str
    fence: int
    at_s: float
    program: str


@dataclass(slots=True)
class Use:
    """A handler used what a limit allows; `end_s` is None if its program was killed."""

    limit: str
    program: str
    start_s: float
    end_s: float | None = None


@dataclass(frozen=True, slots=True)
class UseLimit:
    """A limit of the group: most uses at once, and most that begin in a minute; 0 is no limit."""

    in_flight: int
    rpm: int = 0


@dataclass(slots=True)
class HandlerRun:
    """A run of a task: when its handler began, and ended by itself. `once`: it must not run twice.

    Both are in the order of events; a run that was cut off has no end.
    """

    task_id: int
    begun: float
    ended: float | None = None
    once: bool = True
