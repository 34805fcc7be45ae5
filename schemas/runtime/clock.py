"""The clock that is passed in. No other module may ask for the time or sleep.

The database's clock decides due times and leases; this clock paces loops and measures durations.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """The functions of time that a loop needs."""

    def now_s(self) -> float:
        """Return seconds that only rise, even while the machine is suspended (CLOCK_BOOTTIME)."""
        ...

    def utc_s(self) -> float:
        """Return seconds since 1970, UTC, for screens and headers; never for a decision."""
        ...

    async def sleep(self, delay_s: float) -> None:
        """Wait."""
        ...


_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's clock."""

    def __init__(self) -> None:
        # CLOCK_BOOTTIME, which counts suspension; without it, the monotonic clock. Each attempt
        # reads the clock some times, so no function of Python stands between.
        self.now_s: Callable[[], float] = partial(time.clock_gettime, _STEADY)

    def utc_s(self) -> float:
        """Return seconds since 1970."""
        return time.time()

    async def sleep(self, delay_s: float) -> None:
        """Wait on the running event loop."""
        await asyncio.sleep(delay_s)
