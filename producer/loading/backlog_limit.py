"""Holds new tasks back while a group has too many that are unfinished."""

from collections.abc import Callable
from dataclasses import dataclass, field

from docllm.producer.ledger import tally
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import Clock

CHECK_EVERY_S = 2.0


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
