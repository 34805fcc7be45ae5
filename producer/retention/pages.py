"""Paces deletions, page after page, so that agents beside them go on settling.

A page that met a lock wait or a time-out is done again at half its size. After each page there is a
pause of at least the page's duration. The pause grows while pages take longer than the fastest one,
because then the database is busier.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from docllm.schemas.ledger.database import DatabaseError
from docllm.schemas.ledger.errors import passing
from docllm.schemas.runtime.clock import Clock

# Tasks in a transaction. Settles beside larger ones take longer: `python -m bench purge`.
FIRST, MAX_ROWS, MIN_ROWS = 200, 250, 25
GROWTH = 1.1
SLOWEST = 20.0  # most that a pause may last, as a multiple of its page's duration
FAILED_S = 1.0  # the first pause after a page that failed
MAX_S = 30.0  # longest pause, unless the page itself took longer


@dataclass(slots=True)
class Pages:
    """The size of the next page, and the pauses between pages.

    `rate`: tasks a second at most, None for no limit but the pauses.
    """

    clock: Clock
    rate: float | None = None
    size: int = FIRST
    _best_s: float = field(default=float("inf"), init=False)  # of a task in the fastest page
    _failures: int = field(default=0, init=False)

    async def run(self, page: Callable[[int], Awaitable[tuple[int, int]]]) -> int:
        """Do one page, and pause; return where the next page begins.

        `page` is given the number of tasks. It returns where the next one begins, and how many
        tasks it took. Errors that may pass are waited for; others are raised.
        """
        while True:
            began_s = self.clock.now_s()
            try:
                next_id, count = await page(self.size)
            except DatabaseError as error:
                if not passing(error):
                    raise
                self.size = max(MIN_ROWS, self.size // 2)
                await self.clock.sleep(min(MAX_S, FAILED_S * 2**self._failures))
                self._failures = min(self._failures + 1, 10)
                continue
            self._failures = 0
            await self.clock.sleep(self._pause_s(self.clock.now_s() - began_s, count))
            self.size = min(MAX_ROWS, int(self.size * GROWTH))
            return next_id

    def _pause_s(self, took_s: float, count: int) -> float:
        if not count:
            return 0.0
        each_s = took_s / count
        self._best_s = min(self._best_s, each_s)
        slower = each_s / self._best_s if self._best_s else 1.0
        pause_s = min(took_s * min(SLOWEST, slower), max(took_s, MAX_S))
        return pause_s if self.rate is None else max(pause_s, count / self.rate - took_s)
