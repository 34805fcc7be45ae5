"""Models of real limiters: each is the `answer` of a busy agent, in the time of its clock."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from docllm.agent.ports.outcome import Outcome
from tests.support.routes import GOOD, snoozed

REFUSED = snoozed("RATE", 1.5)
REFUSAL_S = 0.01
Range = tuple[float, float]


@dataclass
class Limiter:
    """A provider that refuses some calls at once; `latency_s` is the time of an answer."""

    latency_s: Range = (0.25, 0.35)
    log: list[tuple[float, bool]] = field(default_factory=list)

    def __call__(self, now_s: float, rng: random.Random) -> tuple[float, Outcome]:
        """Return how a call ends, and when."""
        latency_s = rng.uniform(*self.latency_s)
        takes = self.takes(now_s, latency_s, rng)
        self.log.append((now_s, takes))
        return (latency_s, GOOD) if takes else (REFUSAL_S, REFUSED)

    def takes(self, now_s: float, latency_s: float, rng: random.Random) -> bool:
        """Return whether a call is not refused."""
        raise NotImplementedError

    def between(self, from_s: float, to_s: float) -> list[bool]:
        """Return whether each call of an interval was taken."""
        return [taken for at_s, taken in self.log if from_s <= at_s < to_s]

    def passed(self, from_s: float, to_s: float) -> int:
        """Return how many calls of an interval were taken."""
        return sum(self.between(from_s, to_s))

    def refused(self, from_s: float, to_s: float) -> int:
        """Return how many calls of an interval were refused."""
        return len(self.between(from_s, to_s)) - self.passed(from_s, to_s)


@dataclass
class TokenBucket(Limiter):
    """nginx `limit_req rate=300r/m burst=10 nodelay`; a refused call costs nothing."""

    rate: float = 5.0
    burst: float = 11.0
    _level: float = 11.0
    _at_s: float = 0.0

    def takes(self, now_s: float, latency_s: float, rng: random.Random) -> bool:
        """Take a call if the bucket has a token."""
        self._level = min(self.burst, self._level + (now_s - self._at_s) * self.rate)
        self._at_s = now_s
        if self._level < 1:
            return False
        self._level -= 1
        return True


@dataclass
class Window(Limiter):
    """So many calls in the last minute; a refused call counts too."""

    limit: int = 300
    _seen_s: deque[float] = field(default_factory=deque)

    def takes(self, now_s: float, latency_s: float, rng: random.Random) -> bool:
        """Take a call if there were few in the last minute."""
        self._seen_s.append(now_s)
        while self._seen_s[0] <= now_s - 60:
            self._seen_s.popleft()
        return len(self._seen_s) <= self.limit


@dataclass
class Counter(Limiter):
    """HAProxy `sc_http_req_rate(60s) gt 300`; a refused call counts too.

    Its rate is the present minute's calls, and of the minute before the part that is less than a
    minute ago.
    """

    limit: int = 300
    _began_s: float = 0.0
    _present: int = 0
    _former: int = 0

    def takes(self, now_s: float, latency_s: float, rng: random.Random) -> bool:
        """Take a call if the counted rate is below the limit."""
        while now_s >= self._began_s + 60:
            self._former, self._present = self._present, 0
            self._began_s += 60
        self._present += 1
        left = 1 - (now_s - self._began_s) / 60
        return self._present + self._former * left <= self.limit


class Dice(Limiter):
    """Refuses a share of all calls, whatever their rate."""

    def __init__(self, share: float, latency_s: Range = (0.1, 2.0)) -> None:
        super().__init__(latency_s)
        self._share = share

    def takes(self, now_s: float, latency_s: float, rng: random.Random) -> bool:
        """Throw the dice."""
        return rng.random() >= self._share


class InFlight(Limiter):
    """Takes so many calls at once as `most` says for a time."""

    def __init__(self, most: Callable[[float], int], latency_s: Range) -> None:
        super().__init__(latency_s)
        self._most = most
        self._ends_s: list[float] = []

    def takes(self, now_s: float, latency_s: float, rng: random.Random) -> bool:
        """Take a call if there is room."""
        self._ends_s = [end_s for end_s in self._ends_s if end_s > now_s]
        if len(self._ends_s) >= self._most(now_s):
            return False
        self._ends_s.append(now_s + latency_s)
        return True
