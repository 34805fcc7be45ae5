"""Moves a tenant's tasks beyond its limit to the bulk lane.

Otherwise other tenants' records would wait behind them on the topic, where tenants cannot take
turns.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from docllm.producer.ledger import tally
from docllm.producer.ledger.new_tasks import NewTask
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.record.lanes import Lane

FRESH_S = 5.0  # how long the ledger's counts of tenants' tasks are used


class Overflow:
    """Chooses the lane of new tasks by what their tenants have already.

    A tenant with `limit` unfinished tasks gets its next normal ones into the bulk lane; 0 is no
    limit. What was chosen since the ledger was asked last counts too.
    """

    def __init__(self, *, transactions: Transactions, clock: Clock, group: str, limit: int) -> None:
        self._transactions = transactions
        self._clock = clock
        self._group = group
        self.limit = limit
        self._unfinished: Counter[str] = Counter()
        self._asked_at_s = float("-inf")

    async def place(self, tasks: Sequence[NewTask]) -> Sequence[NewTask]:
        """Return the tasks in the lanes in which they shall wait."""
        if self.limit and self._clock.now_s() - self._asked_at_s > FRESH_S:
            self._asked_at_s = self._clock.now_s()
            self._unfinished = await self._transactions.read(tally.unfinished, self._group)
        more = Counter([task.tenant for task in tasks])
        if self.limit and any(self._unfinished[name] + more[name] > self.limit for name in more):
            return list(self._placed(tasks))
        self._unfinished.update(more)
        return tasks

    def _placed(self, tasks: Iterable[NewTask]) -> Iterable[NewTask]:
        for task in tasks:
            is_over = self.limit <= self._unfinished[task.tenant]
            self._unfinished[task.tenant] += 1
            yield replace(task, lane=Lane.BULK) if is_over and task.lane is Lane.NORMAL else task
