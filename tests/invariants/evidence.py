"""The evidence of a run, seen from outside after its end, as values.

Each run fills the fields that it can see; `happened` has the rest. Nothing here asks docllm itself:
rows come from the database, records and offsets from the bus, calls from the LLM server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from tests.invariants.counted import Sums
from tests.invariants.happened import (
    Claim,
    Commit,
    Count,
    DeclaredLost,
    Guarded,
    HandlerRun,
    Incarnation,
    Join,
    Late,
    LockUse,
    Move,
    Ordered,
    Outage,
    Replayed,
    Stored,
    Use,
    UseLimit,
)
from tests.invariants.turns import Share, Taking


@dataclass(frozen=True, slots=True)
class Death:
    """A dead letter's row."""

    fence: int = 0
    disposition: str = "permanent"
    error_class: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """A row of the ledger, with its input and its result.

    `settled_s` is the UTC time of the result in seconds. `result_owner` is the claim under which
    the result was written, None if it was not recorded. `with_parent`: it is no follow-up, or was
    made in the transaction in which its parent succeeded. `not_before_s` is on the clock of moves.
    `as_changed`: its answer is to what a replay has changed, if one has. `stopped`: it is a join
    that waits for the replay of a dead sibling.
    """

    id: int
    name: str  # batch/key, as in the request id
    status: int
    attempt: int = 0
    max_attempts: int = 5
    replays: int = 0
    fence: int = 0
    owner: int = 0
    raw_key: bytes | None = None
    value: bytes = b""
    results: int = 0
    death: Death | None = None
    settled_s: float | None = None
    result_owner: int | None = None
    with_parent: bool = True
    tenant: str = "default"
    not_before_s: float = -inf
    as_changed: bool = True
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Loss:
    """A row of an attempt that was lost, or a task's count of them with `owner` None."""

    task_id: int
    owner: int | None
    times: int = 1


@dataclass(frozen=True, slots=True)
class Attempt:
    """An ended attempt that did not succeed.

    `number`: the counted attempts before it. `settled_s`: UTC time in seconds, by the agent's
    clock. `owner`: the claim's owner, 0 if the reaper wrote the attempt, None if it was not
    recorded.
    """

    task: str
    number: int
    outcome: str
    error_class: str
    settled_s: float
    owner: int | None = None


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
    """A record of the dead-letter topic. Copies are equal.

    `task_id` or `quarantine_id` names its task or its quarantine row. `pointer`: its topic refused
    the value, and the ledger has it.
    """

    key: bytes | None
    value: bytes | None
    task_id: int | None = None
    quarantine_id: int | None = None
    death: Death = Death()
    pointer: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One call as the LLM server saw it.

    Times are in seconds. `end_s` is None while the call has not ended, `status` is 0 when the
    client left. `label`: the number of the attempt as the caller gave it, from 1. `good`: the
    answer was all that its task needed, as far as this was recorded. `tokens_in`, `tokens_out`:
    what it cost, as far as this was recorded. `again`: the attempt had called before, for example
    for an answer that did not fit its schema. `connected`: false for a call that found no
    connection, which the server never saw.
    """

    name: str
    start_s: float
    end_s: float | None = None
    status: int = 0
    start_utc_s: float = 0.0
    label: int = 1
    sent_bytes: int = 0
    order: float = 0.0
    task_id: int = 0
    route: str = ""
    claim: Claim | None = None
    good: bool = False
    tokens_in: int = 0
    tokens_out: int = 0
    again: bool = False
    connected: bool = True


@dataclass(frozen=True, slots=True)
class Kill:
    """A SIGKILL, and the tasks in its victim's claims by the ledger at that moment."""

    at_s: float
    claimed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of a route's account; 0 is none.

    `faults` counts those of Redis, `agents` those that ran. `days_s` are the times at which days of
    the limits begin, and when the last of them ends. `shares`: agents may have kept to shares.
    """

    route: str
    rpm: int = 0
    tpm: int = 0
    in_flight: int = 0
    rpd: int = 0
    faults: int = 0
    agents: int = 1
    days_s: Sequence[float] = ()
    shares: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was seen of one run.

    `loaded` holds every accepted task once, by name. `tiers_s`: the delays of the configured tiers.
    `letters_again`: the quarantine's rows that are dead letters of tasks, written back by somebody.
    `moves` is None if the history of the rows was not recorded. `failures`: programs that ended by
    an error, and bugs that they logged. `slots`: the slots of each agent. `relief`: another record
    of its task may replace a record that a commit passes. `revoked_s`: when each program lost
    partitions; None if this was not recorded, or if the agents had no room to keep answers.
    `passed`: the calls after which an attempt went on to another route; `calls` has the others.
    `blamed`: the tasks whose attempts counted because their process ended, and whether their
    handler ends processes. `hooks_run`: the hooks that ran to their end or were given up, by task
    and event, of the tasks `hooked`. `misread`: sums of all that happened which, in the middle of
    the run, were not those of the history until then. `ends_told`: when the hook of the batch was
    called, and for which round. `lines`: the tasks on the topic of results, with their states;
    None if there is no such topic. `of_batch`: the batch's tasks, and whether each was loaded.
    `type_slots`: the slots of a type in each agent, and how many of its handlers ran at once.
    `handler_runs`: those of tasks that must not run twice, and of some that may.
    `uses`: of what the limits of types and the named ones allow, `use_limits`.
    `takings`: what agents took to claim, and what waited then; `tenants`: those with settings.
    `joins`: follow-ups that wait for their siblings.
    `late`: what has happened to a batch since it was archived, None if it was not.
    """

    loaded: frozenset[str]
    tasks: Sequence[Task]
    attempts: Sequence[Attempt] = ()
    tiers_s: Sequence[float] = (30.0, 300.0, 3600.0)
    orders: int = 0
    positions: Sequence[Position] = ()
    letters: Sequence[Letter] = ()
    quarantined: Sequence[int] = ()
    letters_again: Sequence[int] = ()
    calls: Sequence[Call] = ()
    passed: Sequence[Call] = ()
    kills: Sequence[Kill] = ()
    moves: Sequence[Move] | None = None
    counts: Sequence[Count] = ()
    sums: Sequence[Sums] = ()
    misread: Sequence[str] = ()
    losses: Sequence[Loss] | None = None
    ordered: Sequence[Ordered] = ()
    guards: Sequence[Guarded] = ()
    replayed: Sequence[Replayed] = ()
    declared_lost: Sequence[DeclaredLost] = ()
    records: Sequence[Stored] = ()
    commits: Sequence[Commit] = ()
    outages: Sequence[Outage] = ()
    agents: Mapping[int, Incarnation] = field(default_factory=dict)
    failures: Sequence[str] = ()
    slots: int = 0
    relief: bool = False
    revoked_s: Mapping[str, Sequence[float]] | None = None
    quota: Quota | None = None
    lock_uses: Sequence[LockUse] = ()
    lost_outputs: Sequence[tuple[int, str]] = ()
    overwritten: Sequence[str] = ()
    blamed: Sequence[tuple[str, bool]] = ()
    hooks_run: Sequence[tuple[int, str]] = ()
    hooked: frozenset[int] = frozenset()
    lines: frozenset[tuple[str, str]] | None = None
    ends_told: Sequence[tuple[float, int]] = ()
    of_batch: Mapping[int, bool] = field(default_factory=dict)
    type_slots: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    handler_runs: Sequence[HandlerRun] = ()
    uses: Sequence[Use] = ()
    use_limits: Mapping[str, UseLimit] = field(default_factory=dict)
    takings: Sequence[Taking] = ()
    joins: Sequence[Join] = ()
    tenants: Mapping[str, Share] = field(default_factory=dict)
    late: Late | None = None
