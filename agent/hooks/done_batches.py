"""Finds the batches that are done, in the one agent of the group that has the turn."""

from dataclasses import dataclass, field

from docllm.agent.ledger import batch_ends
from docllm.agent.ledger.leases import duty_turns
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock

TURN_S = 12.0
RENEW_S = 4.0


@dataclass(slots=True, kw_only=True, eq=False)
class DoneBatches:
    """Writes the ends of batches, with the orders of their hooks.

    The turn only saves work: any number of agents may find the same end, and one writes it.
    """

    transactions: Transactions
    clock: Clock
    group: str
    _turn: int = field(default=0, init=False)
    _renew_at_s: float = field(default=0.0, init=False)

    async def find_in_turn(self) -> None:
        """Find the batches that are done if this agent has the turn."""
        now_s = self.clock.now_s()
        if now_s >= self._renew_at_s:
            self._renew_at_s = now_s + RENEW_S
            self._turn = await self.transactions.write(
                duty_turns.take, f"batches of {self.group}", self._turn, TURN_S
            )
        if self._turn:
            await self.find()

    async def find(self) -> int:
        """Write the ends of the batches that are done; return how many."""
        found = 0
        while rows := await self.transactions.read(batch_ends.done, self.group):
            ids = [row.id for row in rows]
            found += (number := await self.transactions.write(batch_ends.write, self.group, ids))
            crash.reach("hook.batch_ended")
            if not number:  # another agent was faster, or one of them is open again
                break
        return found
