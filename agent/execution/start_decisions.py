"""What admission may decide about a claimed task: it starts, it waits, or it is given back."""

from dataclasses import dataclass
from enum import Enum

from docllm.agent.handlers.calls.permits import CallPermits
from docllm.agent.routes import RouteCall
from docllm.schemas.task.guard import Guard


@dataclass(slots=True, eq=False)
class AttemptStart:
    """What one attempt starts with; never changed. Give it back with `Admission.end`.

    `route_call` is the attempt as its route counts it. `call_permits` gives the attempt's calls
    their permits within the provider's limits.
    `refused_alone`: the task met AUTH before, and its route has since answered other calls.
    """

    route_call: RouteCall
    call_permits: CallPermits
    refused_alone: bool

    @property
    def limit_s(self) -> float | None:
        """The time limit of a probe's call; None for any other call."""
        return self.route_call.limit_s


class NotStarted(Enum):
    """Why a claimed task may not start now. Its claim is given back."""

    LEAVING = "the agent is leaving"
    LEASE = "the lease of its claim is no longer good"
    SUSPECT = "another crash suspect runs"
    ROUTE = "its route takes no call now"
    QUOTA = "the limits of its account or its tenant leave no room now"
    TYPE = "the slots of its type are used"


@dataclass(frozen=True, slots=True)
class TypeUnknown:
    """This agent does not know the type of a claimed task, which must wait for one that does."""

    name: str


@dataclass(frozen=True, slots=True)
class RouteRefused:
    """A claimed task may take no route of this agent; `reason` says why. It must wait."""

    reason: str


@dataclass(frozen=True, slots=True)
class TypeAsleep:
    """The hours of a claimed task's type have not begun."""

    name: str


# Why a claimed task must wait in the ledger; it keeps its slot until it may be moved.
PutOff = Guard | TypeUnknown | TypeAsleep | RouteRefused
