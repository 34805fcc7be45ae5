"""A lease in the agent's memory. It is never revived.

Once it is lost, its agent continues under a new incarnation.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from docllm.schemas.task.owner import owner_of

CLAIMS_PER_INCARNATION = 1 << 23
HEARTBEAT_MAX_AGE_S = 9.0


@dataclass(slots=True, eq=False)
class Lease:
    """One agent incarnation.

    `beaten_at_s` is the clock's time just before the last heartbeat that the ledger confirmed.
    """

    agent_id: int
    beaten_at_s: float
    claims: int = 0  # claim calls made under this lease
    running: int = 0  # tasks claimed under this lease and not settled yet
    hooks: int = 0  # hooks that run under this lease
    # True once a heartbeat was late. From then on the lease is not used for claims, and a new
    # incarnation is registered. After the next confirmed heartbeat, tasks that it already claimed
    # may make calls again.
    was_late: bool = False
    is_lost: bool = False

    def may_claim(self, now_s: float) -> bool:
        """Return whether a claim may be made under this lease."""
        return self.may_call(now_s) and not self.was_late and self.claims < CLAIMS_PER_INCARNATION

    def may_call(self, now_s: float) -> bool:
        """Return whether a call may begin for a task claimed under this lease.

        While it may, no agent can have declared the lease lost. After a late heartbeat, calls may
        begin again as soon as the ledger has confirmed one: the lease was not lost meanwhile.
        """
        return not self.is_lost and now_s - self.beaten_at_s <= HEARTBEAT_MAX_AGE_S

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the lease from looking idle, as a running task does."""
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def next_owner(self) -> int:
        """Return the owner number of a new claim call; no number is returned twice."""
        self.claims += 1
        return owner_of(self.agent_id, self.claims)


class Leases(Protocol):
    """The leases of one agent, as its heartbeat keeps them."""

    @property
    def current(self) -> Lease:
        """The newest lease. A claim under it may be refused: see `may_claim`."""
        ...
