"""Shows the group's progress and why work waits; it only reads.

On a terminal it draws a bar, elsewhere it logs a line now and then.
"""

import asyncio
import logging
import os
import sys

from agent.reporting.latest_report import LatestReport
from agent.reporting.telemetry import Counts
from producer.ledger import status
from producer.screen.output import bar
from producer.text.agent_report import joined, sentences
from schemas.ledger.database import DatabaseError
from schemas.ledger.transactions import Transactions
from schemas.runtime.clock import Clock

log = logging.getLogger(__name__)

# Between two looks, two log lines of counts, two warnings.
LOOK_S = 1.0
LOG_S = 30.0
WARN_S = 60.0


def in_front() -> bool:
    """Return whether stderr is a terminal with this process group in the foreground.

    Agents of one parent would draw over each other.
    """
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:
        return False


class Progress:
    """The progress of one agent's group, and what this agent did for it."""

    def __init__(
        self,
        *,
        transactions: Transactions,
        group: str,
        clock: Clock,
        counts: Counts,
        latest: LatestReport,
    ) -> None:
        self._transactions = transactions
        self._group = group
        self._clock = clock
        self._counts = counts
        self._latest = latest

    async def run(self) -> None:
        """Show progress until cancelled."""
        show = self._draw if in_front() else self._log
        await asyncio.gather(show(), self._warn(), self._log_deaths())

    async def _draw(self) -> None:
        with bar("tasks") as progress:
            while True:
                try:
                    group_status = await self._transactions.read(status.read, self._group)
                except DatabaseError as error:
                    log.debug("progress cannot be read: %s", getattr(error, "orig", error))
                else:
                    counts = [batch.counts for batch in group_status.batches]
                    final = sum(
                        count["succeeded"] + count["dead"] + count["cancelled"] for count in counts
                    )
                    progress.show(final, sum(count["total"] for count in counts))
                await self._clock.sleep(LOOK_S)

    async def _log(self) -> None:
        summary = ""
        while True:
            await self._clock.sleep(LOG_S)
            if summary != (summary := self._counts.summary()):
                log.info("%s", summary)

    async def _warn(self) -> None:
        """Log why work waits, when that begins and now and then while it lasts."""
        while True:
            report = self._latest.get()
            if notice := "" if report is None else joined(sentences(report, self._group)):
                log.warning("%s", notice)
            await self._clock.sleep(WARN_S if notice else LOOK_S)

    async def _log_deaths(self) -> None:
        """Log once a minute which errors killed tasks since the last time.

        A wrong parameter may kill a whole batch.
        """
        while True:
            await self._clock.sleep(WARN_S)
            for line in self._counts.deaths.news(self._group):
                log.warning("%s", line)
