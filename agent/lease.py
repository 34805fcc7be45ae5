"""A lease in the agent's memory. It is never revived: once lost, its agent goes on under a new incarnation."""

from dataclasses import dataclass

from schemas.task import OWNER_BITS

__all__ = ["CLAIMS_PER_INCARNATION", "FRESH_S", "OWNER_BITS", "Lease"]

CLAIMS_PER_INCARNATION = 1 << 23
FRESH_S = 9.0


@dataclass(slots=True, eq=False)
class Lease:
    """One agent incarnation. `beaten_s` is the clock's time just before the last heartbeat that the ledger confirmed."""

    agent_id: int
    beaten_s: float
    claims: int = 0  # claim calls made under it
    running: int = 0  # tasks claimed under it and not settled
    late: bool = False  # was silent for too long: it beats on for what was claimed, nothing new is claimed under it
    lost: bool = False

    def fresh(self, now_s: float) -> bool:
        """Return whether a claim may be made under this lease."""
        return self.good(now_s) and not self.late and self.claims < CLAIMS_PER_INCARNATION

    def good(self, now_s: float) -> bool:
        """Return whether a call may begin for what was claimed under this lease: nobody can have taken it away yet."""
        return not self.lost and now_s - self.beaten_s <= FRESH_S

    def next_owner(self) -> int:
        """Return the owner number of a new claim call; it is never given out twice."""
        self.claims += 1
        return self.agent_id << OWNER_BITS | self.claims
