"""Holds new tasks back while a group has too many that are unfinished."""

from collections.abc import Callable

from docllm.producer.ledger import tally
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import Clock

CHECK_EVERY_S = 2.0


class BacklogLimit:
    """Waits while a group has `most` or more unfinished tasks; 0 is no limit.

    `say` is told once for each time that it has to wait.
    """

    def __init__(
        self,
        *,
        transactions: Transactions,
        clock: Clock,
        group: str,
        most: int,
        say: Callable[[str], None],
    ) -> None:
        self._transactions = transactions
        self._clock = clock
        self._group = group
        self._most = most
        self._say = say
        self._is_told = False

    async def wait(self) -> None:
        """Return once there is room for more tasks."""
        while self._most and (count := await self._unfinished()) >= self._most:
            if not self._is_told:
                self._say(
                    f"{count:,} tasks of group {self._group} are unfinished: waiting until there "
                    f"are fewer than {self._most:,}"
                )
            self._is_told = True
            await self._clock.sleep(CHECK_EVERY_S)
        self._is_told = False

    async def _unfinished(self) -> int:
        return (await self._transactions.read(tally.unfinished, self._group)).total()
