"""What is seen of a run from outside, as values: ledger, topics, offsets, the LLM server's log, kills. `checker` judges it."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """A row of the ledger, with its input and its result. `settled_s` is the UTC time of the result in seconds."""

    id: int
    name: str  # batch/key, as the request id spells it
    status: int
    attempt: int = 0
    max_attempts: int = 5
    replays: int = 0
    fence: int = 0
    owner: int = 0
    raw_key: bytes | None = None
    value: bytes = b""
    results: int = 0
    death: "Death | None" = None
    settled_s: float | None = None


@dataclass(frozen=True, slots=True)
class Death:
    """A dead letter's row."""

    fence: int = 0
    disposition: str = "permanent"
    error_class: str = ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An ended attempt that did not succeed. `number`: counted ones before it. `settled_s`: UTC time in seconds, by the agent's clock."""

    task: str
    number: int
    outcome: str
    error_class: str
    settled_s: float


@dataclass(frozen=True, slots=True)
class Position:
    """A partition's watermarks and the group's committed offset."""

    topic: str
    number: int
    low: int
    high: int
    committed: int | None


@dataclass(frozen=True, slots=True)
class Letter:
    """A record of the dead letter topic; `task_id` or `quarantine_id` says whose it is. A copy is equal."""

    key: bytes | None
    value: bytes | None
    task_id: int | None = None
    quarantine_id: int | None = None
    death: Death = Death()


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the LLM server saw it. Times in seconds; `end_s` is None while it has not ended, `status` 0 when the client left.

    `label`: which attempt the caller said it is, from 1.
    """

    name: str
    start_s: float
    end_s: float | None = None
    status: int = 0
    start_utc_s: float = 0.0
    label: int = 1
    sent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Kill:
    """A SIGKILL, and the tasks that the ledger showed in the claims of its victim at that moment."""

    at_s: float
    claimed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was seen of one run, after its end. `loaded` holds every accepted task once, by name.

    `tiers_s`: the delays of the configured tiers.
    """

    loaded: frozenset[str]
    tasks: Sequence[Task]
    attempts: Sequence[Attempt] = ()
    tiers_s: Sequence[float] = (30.0, 300.0, 3600.0)
    orders: int = 0
    positions: Sequence[Position] = ()
    letters: Sequence[Letter] = ()
    quarantined: Sequence[int] = ()
    calls: Sequence[Call] = ()
    kills: Sequence[Kill] = ()
