"""A lease in the agent's memory. It is never revived: once lost, its agent goes on under a new incarnation."""

from dataclasses import dataclass

OWNER_BITS = 24
CLAIMS_PER_INCARNATION = 1 << 23
FRESH_S = 9.0


@dataclass(slots=True, eq=False)
class Lease:
    """One agent incarnation. `beaten_s` is the clock's time just before the last heartbeat that the ledger confirmed."""

    agent_id: int
    beaten_s: float
    claims: int = 0  # claim calls made under it
    running: int = 0  # tasks claimed under it and not settled
    late: bool = False  # was silent for too long: it beats on for what runs, nothing new starts under it
    lost: bool = False

    def fresh(self, now_s: float) -> bool:
        """Return whether a call may be started under this lease."""
        return not (self.lost or self.late) and now_s - self.beaten_s <= FRESH_S and self.claims < CLAIMS_PER_INCARNATION

    def next_owner(self) -> int:
        """Return the owner number of a new claim call; it is never given out twice."""
        self.claims += 1
        return self.agent_id << OWNER_BITS | self.claims
