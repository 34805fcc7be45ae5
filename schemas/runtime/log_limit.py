"""Bounds how often a line is logged."""

from docllm.schemas.runtime.clock import Clock

LOG_EVERY_S = 60.0


class LogLimit:
    """Lets one kind of line be logged once a minute; the first one at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_at_s = float("-inf")

    def permits(self) -> bool:
        """Return whether the line may be logged now; if so, the caller logs it."""
        now_s = self._clock.now_s()
        if now_s < self._next_at_s:
            return False
        self._next_at_s = now_s + LOG_EVERY_S
        return True
