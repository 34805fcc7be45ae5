"""The duty that moves old counts into the roll-ups."""

from docllm.agent.ledger.counts import compaction
from docllm.agent.ledger.counts.compaction import CompactionLimits
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock

ROUND_S = 20.0  # longest duration of a round, because the other duties wait for it
PAUSE_S = 0.01  # pause between two pages, so that other work can use the database


async def compact(transactions: Transactions, clock: Clock, limits: CompactionLimits) -> int:
    """Move the old counts, page after page; return how many. The next round moves what is left.

    It ends when no old count is left, or another agent has the turn.
    """
    began_s, total = clock.now_s(), 0
    while count := await transactions.write(compaction.compact, limits):
        crash.reach("compact.moved")
        total += count
        if count < limits.page or clock.now_s() - began_s > ROUND_S:
            break
        await clock.sleep(PAUSE_S)
    return total
