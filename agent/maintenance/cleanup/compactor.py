"""The duty that moves old counts into the roll-ups."""

from docllm.agent.ledger.counts import compaction
from docllm.agent.ledger.counts.compaction import CompactionLimits
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock

ROUND_S = 20.0  # longest duration of a round, because the other duties wait for it
PAUSE_S = 0.01  # pause between two pages, so that other work can use the database


class Compactor:
    """Moves page after page until no old count is left, or another agent has the turn."""

    def __init__(
        self, *, transactions: Transactions, clock: Clock, limits: CompactionLimits
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._limits = limits

    async def compact(self) -> int:
        """Move the old counts; return how many. The next round moves what is left."""
        began_s, total = self._clock.now_s(), 0
        while count := await self._transactions.write(compaction.compact, self._limits):
            crash.reach("compact.moved")
            total += count
            if count < self._limits.page or self._clock.now_s() - began_s > ROUND_S:
                break
            await self._clock.sleep(PAUSE_S)
        return total
