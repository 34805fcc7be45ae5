"""Spaces the starts of the granted calls, for servers that accept no bursts. Pure.

A server that lets one call pass every 200 ms refuses two at once, though both are within its limit
of 300 a minute. So the grants of all agents begin one after another. The rule of the next start is
the virtual scheduling algorithm of ITU-T I.371.

Tested by tests/contract/providers/test_quota.py.
"""

from agent.quota.minute import MINUTE_MS

LEAD_MS = 800  # the latest start of a grant, after its exchange: what an idle account saves up


class CallSpacing:
    """The next start of one account, if it has a limit of calls per minute."""

    def __init__(self) -> None:
        self.every_ms = 0.0
        self._now_ms = self._next_ms = 0.0

    def begin(self, now_ms: float, per_minute: float) -> None:
        """Begin an exchange.

        `per_minute` is how many calls may begin in a minute; 0 if no limit counts calls.
        """
        self.every_ms = MINUTE_MS / per_minute if per_minute else 0.0
        self._now_ms, self._next_ms = now_ms, min(max(self._next_ms, now_ms), now_ms + LEAD_MS)

    def add(self, calls: int) -> None:
        """Give so many calls the next starts."""
        self._next_ms += calls * self.every_ms

    def first_in_ms(self, calls: int) -> float:
        """Return how long after the exchange the first of the last so many calls begins."""
        return max(0.0, self._next_ms - calls * self.every_ms - self._now_ms)
