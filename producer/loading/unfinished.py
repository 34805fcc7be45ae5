"""What the unfinished tasks of a group mean for new ones: they wait, or go to the bulk lane."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from docllm.producer.ledger import tally
from docllm.producer.ledger.new_tasks import NewTask
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.record.lanes import Lane

CHECK_EVERY_S = 2.0
FRESH_S = 5.0  # how long the ledger's counts of tenants' tasks are used


@dataclass(slots=True, kw_only=True)
class BacklogLimit:
    """Waits while a group has `most` or more unfinished tasks; 0 is no limit.

    `say` is told once for each time that it has to wait.
    """

    transactions: Transactions
    clock: Clock
    group: str
    most: int
    say: Callable[[str], None]
    _is_told: bool = field(default=False, init=False)

    async def wait(self) -> None:
        """Return once there is room for more tasks."""
        while self.most and (count := await self._unfinished()) >= self.most:
            if not self._is_told:
                self.say(
                    f"{count:,} tasks of group {self.group} are unfinished: waiting until there "
                    f"are fewer than {self.most:,}"
                )
            self._is_told = True
            await self.clock.sleep(CHECK_EVERY_S)
        self._is_told = False

    async def _unfinished(self) -> int:
        return (await self.transactions.read(tally.unfinished, self.group)).total()


@dataclass(slots=True, kw_only=True)
class Overflow:
    """Chooses the lane of new tasks by what their tenants have already.

    Other tenants' records would wait behind those of a large one on the topic, where tenants cannot
    take turns.

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
