"""Spaces the starts of the granted calls, for servers that accept no bursts. Pure.

A server that lets one call pass every 200 ms refuses two at once, though both are within its limit
of 300 a minute. So in the hour after a refusal the grants of all agents begin one after another.
The rule of the next start is the virtual scheduling algorithm of ITU-T I.371. For other servers
this would waste slots: an attempt that waits for its start has one.
"""

from docllm.schemas.settings.quota import QuotaLimits
from tests.support.lua_minute import STRICT_MS

LEAD_MS = 800  # the latest start of a grant, after its exchange: what an idle account saves up


def spaced_per_minute(limits: QuotaLimits) -> int:
    """Return by which limit of calls per minute the starts are spaced; 0 if they are not.

    With a limit of calls at once they are not: a call that waits for its start holds its seat.
    """
    return 0 if limits.in_flight is not None else limits.rpm or 0


class CallSpacing:
    """The next start of one account."""

    def __init__(self) -> None:
        self.every_ms = 0.0
        self._now_ms = self._next_ms = self._until_ms = 0.0

    def begin(self, now_ms: float, per_minute: float, *, refused: bool) -> None:
        """Begin an exchange; `refused`: the provider has refused calls.

        `per_minute` is how many calls may begin in a minute; 0 if their starts are not spaced.
        """
        if refused or self._until_ms > now_ms + STRICT_MS:  # the clock may have been set back
            self._until_ms = now_ms + STRICT_MS
        self.every_ms = 60_000 / per_minute if per_minute and now_ms < self._until_ms else 0.0
        self._now_ms, self._next_ms = now_ms, min(max(self._next_ms, now_ms), now_ms + LEAD_MS)

    def add(self, calls: int) -> None:
        """Give so many calls the next starts."""
        self._next_ms += calls * self.every_ms

    def first_in_ms(self, calls: int) -> float:
        """Return how long after the exchange the first of the last so many calls begins."""
        if not self.every_ms:
            return 0.0
        return max(0.0, self._next_ms - calls * self.every_ms - self._now_ms)
