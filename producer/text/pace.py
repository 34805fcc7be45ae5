"""Measures the recent rate of a growing count, and estimates when it will be done."""

from collections import deque

WINDOW_S = 60.0
MIN_S = 0.5  # least time from which a rate is computed
WHOLE_FROM = 100.0  # from here on, a rate is shown without a fraction


class PaceMeter:
    """The rate of a count that grows. A time is in seconds, on any clock that never goes back."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()

    def see(self, done: float, now_s: float) -> None:
        """Take in how much is done now."""
        self._seen.append((now_s, done))
        while self._seen[0][0] < now_s - WINDOW_S:
            self._seen.popleft()

    @property
    def per_s(self) -> float | None:
        """The rate of the last minute; None before it is known."""
        if not self._seen:
            return None
        (from_s, before), (now_s, done) = self._seen[0], self._seen[-1]
        return max(0.0, done - before) / (now_s - from_s) if now_s - from_s >= MIN_S else None

    def left_s(self, left: float) -> float | None:
        """Return in how many seconds the rest will be done; None if nobody can tell."""
        return left / self.per_s if self.per_s else None


def duration(seconds: float) -> str:
    """Return a time as hours, minutes and seconds."""
    minutes, rest_s = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest_s:02}"


def rate_text(per_s: float | None) -> str:
    """Return a rate for a person; empty if it is not known."""
    if per_s is None:
        return ""
    return f"{per_s:,.{1 if per_s < WHOLE_FROM else 0}f} per s"


def left_text(left_s: float | None) -> str:
    """Return a time that is left, for a person; empty if it is not known."""
    return "" if left_s is None else f"{duration(left_s)} left"
