"""What admission may decide about a claimed task: it starts, or it is given back.

Otherwise it must wait, behind a guard or in the ledger.
"""

from dataclasses import dataclass
from enum import Enum

from docllm.agent.handlers.calls.permits import CallPermits
from docllm.agent.routes import RouteCall


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
