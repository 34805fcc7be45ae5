"""What a limit is to those who wait for it, and the one permit that they get. Pure."""

from dataclasses import dataclass

from docllm.agent.quota.agent_quota import AgentQuota
from docllm.agent.quota.estimate import CallSize
from docllm.agent.quota.grants import Charge
from docllm.schemas.settings.quota import QuotaLimits


class OwnLimit:
    """A limit of how many at once that one agent keeps alone. It is used as an `AgentQuota` is."""

    def __init__(self, limits: QuotaLimits) -> None:
        self.limits = limits
        self.running = 0

    def room(self, _now_s: float) -> int:
        """Return how many may begin now."""
        return (self.limits.in_flight or 0) - self.running

    def begin_call(self, _charge: Charge, now_s: float) -> float | None:
        """Begin a use at once, if there is room."""
        if self.room(now_s) <= 0:
            return None
        self.running += 1
        return now_s

    def note_ended(self, _granted: Charge, _charged: Charge | None) -> None:
        """Note the end of a use."""
        self.running -= 1


Limit = AgentQuota | OwnLimit


@dataclass(slots=True, eq=False)
class Permit:
    """The permission of all limits of a call, an attempt, or a use of a resource.

    Give it back with `Quotas.note_ended`. `charge` is what it will cost by estimate, for a call of
    this `size`. It may begin once the agent's clock shows `at_s`. `account` learns what a reply
    says of the limits; `limits` has all of them. `is_used`: what it allows has begun.
    """

    charge: Charge
    limits: tuple[Limit, ...]
    account: AgentQuota | None
    at_s: float
    size: CallSize
    is_used: bool = False


NOTHING = Charge()  # of tokens
FREE = Permit(NOTHING, (), None, 0.0, CallSize())
