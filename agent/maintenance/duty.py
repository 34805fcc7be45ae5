"""A duty: work that an agent repeats in the background, whether it fails or not."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from docllm.schemas.errors import DeniedError, DocllmError, UnreachableError
from docllm.schemas.ledger.database import DatabaseError
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.runtime.outage import DUTY, Outage

DutyLoop = Callable[[], Coroutine[Any, Any, None]]  # runs until it is cancelled


class Duty:
    """Work with the name under which its failures are logged.

    A duty with `every_s` runs at most once in that time, although its round is more frequent.
    Failures during an outage that `kafka` already logs are not logged.
    """

    def __init__(
        self,
        *,
        name: str,
        work: Callable[..., Awaitable[object]],
        clock: Clock,
        every_s: float = 0.0,
        kafka: Outage | None = None,
    ) -> None:
        self._work = work
        self._clock = clock
        self._every_s = every_s
        self._kafka = kafka
        self._trouble = Outage(name=name, clock=clock, words=DUTY, patience_s=0)
        self._due_at_s = clock.now_s() + every_s

    async def try_once(self, *args: object) -> None:
        """Do the work if it is due; log a failure. The work is tried again when it is due again.

        Raises DeniedError, which ends the agent: the missing right would also be missing at the
        next round.
        """
        now_s = self._clock.now_s()
        if now_s < self._due_at_s:
            return
        self._due_at_s = now_s + self._every_s
        try:
            await self._work(*args)
        except DeniedError:
            raise
        except (DatabaseError, DocllmError, OSError) as error:
            if not (isinstance(error, UnreachableError) and self._kafka and self._kafka.logged):
                self._trouble.failed(getattr(error, "orig", error))
        else:
            self._trouble.answered()

    def every(self, pause_s: float) -> DutyLoop:
        """Return the loop that tries this duty, then pauses."""
        return partial(repeat, (self,), partial(self._clock.sleep, pause_s))


async def repeat(duties: Sequence[Duty], pause: Callable[[], Awaitable[object]]) -> None:
    """Try the duties in turn, then pause; repeat until cancelled."""
    while True:
        for duty in duties:
            await duty.try_once()
        await pause()
