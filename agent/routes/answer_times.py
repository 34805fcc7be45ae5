"""How long a route's answers took lately, and how long is suspiciously long. Pure."""

from collections import deque

RECENT = 100
UNKNOWN_S = 1.0
LEAST_S = 0.001
# A call longer than this is suspiciously long and takes no place in the limit: LONG times the usual
# time, within the bounds below. If answers usually take more than 40 s, it is SLOW times the usual
# time.
LONG = 3.0
MIN_LONG_S = 2.0
MAX_LONG_S = 60.0
SLOW = 1.5


class AnswerTimes:
    """The durations of the last good answers of a route, in seconds."""

    def __init__(self) -> None:
        # How long an answer usually takes: the mean, or UNKNOWN_S without an answer.
        self.usual_s = UNKNOWN_S
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._sum_s, self._kept = 0.0, 0

    def add(self, duration_s: float) -> None:
        """Note how long a good answer took."""
        if self._kept == RECENT:
            self._sum_s -= self._recent[0]
        else:
            self._kept += 1
        self._recent.append(duration_s)
        self._sum_s += duration_s
        usual_s = self._sum_s / self._kept
        self.usual_s = max(LEAST_S, usual_s)

    @property
    def known(self) -> bool:
        """Whether there was a good answer."""
        return bool(self._recent)

    @property
    def slowest_s(self) -> float:
        """How long the slowest recent answer took; 0 if there was none."""
        return max(self._recent, default=0.0)

    @property
    def long_s(self) -> float:
        """The duration above which a call takes far longer than usual."""
        if not self._recent:
            return MAX_LONG_S
        return max(MIN_LONG_S, SLOW * self.usual_s, min(MAX_LONG_S, LONG * self.usual_s))
