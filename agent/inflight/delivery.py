"""A delivery: one task in one agent, with the record that brought it and its state."""

from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Any

from docllm.agent.lease import Lease
from docllm.agent.ports import SUSPECT_LOSSES, Claimable, Partition, Row
from docllm.agent.ports.outcome import NOTHING_SPENT, Spent, Succeeded
from docllm.agent.quota.estimate import CallSize
from docllm.agent.routes import RoutePlan
from docllm.schemas.task.line.parsing import DEFAULT_TENANT
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.record.hints import Hints
from docllm.schemas.task.record.lanes import Lane

_NO_PLAN = RoutePlan("")
_UNKNOWN_SIZE = CallSize()


class DeliveryState(Enum):
    """The state of a delivery; it changes only in the event loop's thread."""

    ASKING = "asking"  # waits for, or is in, a question without locks
    READY = "ready"  # may be claimed when a slot is free
    CLAIMING = "claiming"  # in a claim call
    CLAIMED = "claimed"  # claimed ahead: its attempt begins when a slot is free
    RUNNING = "running"  # claimed, its attempt is under way
    SETTLING = "settling"  # its outcome is not durable yet
    DELAYED = "delayed"  # in the delay queue: the ledger is asked about it later
    BEHIND = "behind"  # waits until an earlier record of its task has ended
    ENDED = "ended"  # it is finished, or its partition was revoked


@dataclass(slots=True, eq=False)
class Delivery:
    """A record in flight.

    `value` is dropped while the delivery waits for long; then the body is read from the ledger.
    `route` is the route on which it runs or waits to run, one of its `plan`.
    """

    partition: Partition
    offset: int
    timestamp_ms: int
    publication: Publication
    value: bytes | None
    digest: bytes | None
    route: str
    state: DeliveryState = DeliveryState.ASKING
    ask_count: int = 0
    snoozes: int = 0
    auth_failed_at_s: float = inf  # when a call for its task last met AUTH
    auth_failed_on: str = ""  # the route of that call
    wake_at_s: float = 0.0
    row: Row | None = None
    owner: int = 0
    lease: Lease | None = None
    claimed_at_s: float = 0.0
    key: bytes | None = None
    line: dict[str, Any] | None = None  # its body, read between the claim and the attempt
    size: CallSize = _UNKNOWN_SIZE  # by the hints; known once the body has been read
    tenant: str = DEFAULT_TENANT  # by the header; the ledger's, once it has answered
    lane: Lane = Lane.NORMAL  # its topic's, or its task's once the ledger has answered
    plan: RoutePlan = _NO_PLAN
    # An answer that is not settled or not written yet; the next claim settles it without a call.
    kept_answer: Succeeded | None = None
    spent: Spent = NOTHING_SPENT  # what the running attempt has spent so far
    queue_name: str = ""  # the queue in which it waits for its turn; empty: that of its tenant
    # The route of its next attempt, if earlier routes of the plan have refused the task.
    next_route: str = ""

    task_id: int = field(init=False)  # as the header states it
    hints: Hints = field(init=False)  # as the headers state them; the body's, once it has been read

    def __post_init__(self) -> None:
        """Let a delivery without a plan run on its route alone."""
        self.task_id, self.hints = self.publication.task_id, self.publication.hints
        if not self.plan.route:
            self.plan = RoutePlan(self.route)

    @property
    def own_route(self) -> str:
        """The route on which it runs unless that route is closed."""
        if self.plan.is_free and not self.next_route:
            return self.plan.route
        return self.next_route if self.next_route in self.plan else self.plan.first

    @property
    def is_on_fallback(self) -> bool:
        """Whether it runs on another route because its own route is closed."""
        return self.route != self.own_route

    @property
    def task_type(self) -> str:
        """The type of its task, as far as it is known."""
        return self.size.task_type if self.row is None else self.row.type

    @property
    def suspect(self) -> bool:
        """Whether its task is a crash suspect: enough agents were lost over it."""
        row = self.row
        return row is not None and row.lease_losses >= SUSPECT_LOSSES

    @property
    def runs_alone(self) -> bool:
        """Whether nothing may run beside its task."""
        return self.row is not None and self.row.runs_alone

    def note_spent(self, spent: Spent) -> None:
        """Store what the running attempt has spent so far."""
        self.spent = spent

    def may_call(self, now_s: float) -> bool:
        """Return whether a call may begin, that is, whether the lease of its claim is good."""
        return self.lease is not None and self.lease.may_call(now_s)

    def claimable(self) -> Claimable:
        """Return the record as the ledger's questions and claims take it."""
        return Claimable(self.publication, self.digest)

    def origin(self) -> tuple[str, int, int, int]:
        """Return topic, partition, offset and timestamp of the record."""
        return self.partition.topic, self.partition.number, self.offset, self.timestamp_ms
