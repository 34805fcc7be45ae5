"""The last outcomes of a route, and whether they are bad enough to stop it. Pure.

The window is a number of calls, because a window of time alone is slow to show a failure.
"""

from collections import deque

LAST = 200  # outcomes that are kept, none older than OLD_S
OLD_S = 60.0
MIN_OUTCOMES = 50  # fewer outcomes are too few to judge a share
SHARE = 0.5
_MAX_RUN = 10
_MIN_RUN = 3


def run_for(slots: int) -> int:
    """Return how many failures in a row stop a route, for this number of slots."""
    return min(_MAX_RUN, max(_MIN_RUN, slots))


class OutcomeWindow:
    """The outcomes since the breaker's last change.

    They are bad if there is a run of failures, or if half of the last 200 failed.
    """

    def __init__(self, *, run: int) -> None:
        self._longest_run = run
        self._run = 0
        self._failed = 0
        self._ended: deque[tuple[float, bool]] = deque(maxlen=LAST)

    def add(self, now_s: float, *, failed: bool) -> None:
        """Note how a call ended."""
        self._run = self._run + 1 if failed else 0
        self._failed += failed
        ended = self._ended
        if len(ended) == LAST:
            self._failed -= ended[0][1]  # the deque drops it
        ended.append((now_s, failed))
        while ended[0][0] < now_s - OLD_S:
            self._failed -= ended.popleft()[1]

    def clear(self) -> None:
        """Forget everything."""
        self._run = self._failed = 0
        self._ended.clear()

    @property
    def is_bad(self) -> bool:
        """Whether so many failed that the provider must be at fault, not single tasks."""
        many = len(self._ended) >= MIN_OUTCOMES and self._failed >= SHARE * len(self._ended)
        return many or self._run >= self._longest_run
