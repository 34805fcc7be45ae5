"""Shows the group's progress and why work waits; it only reads.

On a terminal it draws a bar, elsewhere it logs a line now and then.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence

from producer.ledger.status import GroupStatus
from producer.screen.output import bar
from schemas.ledger.database import DatabaseError
from schemas.runtime.clock import Clock

log = logging.getLogger(__name__)

LOOK_S, LOG_S, WARN_S = 1.0, 30.0, 60.0


def in_front() -> bool:
    """Return whether stderr is a terminal with this process group in the foreground.

    Agents of one parent would draw over each other.
    """
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:
        return False


class Progress:
    """The progress of one agent's group.

    `summary` returns what this agent did, and `notice` why it does nothing, if so. `deaths` returns
    lines about tasks that died in it since the last call.
    """

    def __init__(
        self,
        *,
        read: Callable[[], Awaitable[GroupStatus]],
        clock: Clock,
        summary: Callable[[], str],
        notice: Callable[[], str],
        deaths: Callable[[], Sequence[str]],
    ) -> None:
        self._read = read
        self._clock = clock
        self._summary = summary
        self._notice = notice
        self._deaths = deaths

    async def run(self) -> None:
        """Show progress until cancelled."""
        show = self._draw if in_front() else self._log
        await asyncio.gather(show(), self._warn(), self._tell_deaths())

    async def _draw(self) -> None:
        with bar("tasks") as shown:
            while True:
                try:
                    counts = [batch.counts for batch in (await self._read()).batches]
                except DatabaseError as error:
                    log.debug("progress cannot be read: %s", getattr(error, "orig", error))
                else:
                    final = sum(one["succeeded"] + one["dead"] + one["cancelled"] for one in counts)
                    shown.show(final, sum(one["total"] for one in counts))
                await self._clock.sleep(LOOK_S)

    async def _log(self) -> None:
        said = ""
        while True:
            await self._clock.sleep(LOG_S)
            if said != (said := self._summary()):
                log.info("%s", said)

    async def _warn(self) -> None:
        """Log why work waits, when that begins and now and then while it lasts."""
        while True:
            if notice := self._notice():
                log.warning("%s", notice)
            await self._clock.sleep(WARN_S if notice else LOOK_S)

    async def _tell_deaths(self) -> None:
        """Log once a minute which errors killed tasks since the last time.

        A wrong parameter may kill a whole batch.
        """
        while True:
            await self._clock.sleep(WARN_S)
            for line in self._deaths():
                log.warning("%s", line)
