"""Moves a tenant's tasks beyond its limit to the bulk lane.

Otherwise other tenants' records would wait behind them on the topic, where tenants cannot take
turns.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from docllm.producer.ledger import tally
from docllm.producer.ledger.new_tasks import NewTask
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.record.lanes import Lane

FRESH_S = 5.0  # how long the ledger's counts of tenants' tasks are used


@dataclass(slots=True, kw_only=True)
class Overflow:
    """Chooses the lane of new tasks by what their tenants have already.

    A tenant with `limit` unfinished tasks gets its next normal ones into the bulk lane; 0 is no
    limit. What was chosen since the ledger was asked last counts too.
    """

    transactions: Transactions
    clock: Clock
    group: str
    limit: int
    _unfinished: Counter[str] = field(default_factory=Counter, init=False)
    _asked_at_s: float = field(default=float("-inf"), init=False)

    async def place(self, tasks: Sequence[NewTask]) -> None:
        """Put the tasks into the lanes in which they shall wait."""
        if self.limit and self.clock.now_s() - self._asked_at_s > FRESH_S:
            self._asked_at_s = self.clock.now_s()
            self._unfinished = await self.transactions.read(tally.unfinished, self.group)
        more = Counter([task.tenant for task in tasks])
        if self.limit and any(self._unfinished[name] + more[name] > self.limit for name in more):
            self._move(tasks)
        else:
            self._unfinished.update(more)

    def _move(self, tasks: Sequence[NewTask]) -> None:
        for task in tasks:
            count = self._unfinished[task.tenant]
            if count >= self.limit and task.lane is Lane.NORMAL:
                task.lane = Lane.BULK
            self._unfinished[task.tenant] = count + 1
