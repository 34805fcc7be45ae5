"""The troubles of a run's surroundings: their chances, and the outages in progress."""

import random
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Weather:
    """Chances by name, from 0 to 1, the ends of outages, and routes on which every call fails."""

    rng: random.Random
    chances: dict[str, float] = field(default_factory=dict)
    down_until_s: dict[str, float] = field(default_factory=dict)
    slow_s: dict[str, float] = field(default_factory=dict)
    # By route: the trouble, and its end.
    outages: dict[str, tuple[str, float]] = field(default_factory=dict)
    # By program: how long its calls take, and until when.
    crawling: dict[str, tuple[float, float]] = field(default_factory=dict)
    struck: Counter[str] = field(default_factory=Counter)

    def strikes(self, name: str) -> bool:
        """Return whether this trouble occurs now."""
        chance = self.chances.get(name, 0.0)
        if chance and self.rng.random() < chance:
            self.struck[name] += 1
            return True
        return False

    def delay_s(self, name: str, usual_s: float) -> float:
        """Return how long something takes: mostly about `usual_s`, sometimes much longer."""
        slow_s = self.slow_s.get(name, 0.0)
        if slow_s and self.rng.random() < 0.25:
            return self.rng.random() * slow_s
        return usual_s * (0.2 + 2 * self.rng.random())

    def away_s(self, name: str, now_s: float) -> float:
        """Return for how long something does not answer yet."""
        return max(0.0, self.down_until_s.get(name, 0.0) - now_s)

    def outage(self, route: str, now_s: float) -> str:
        """Return the trouble of every call on a route that begins now; empty if there is none."""
        trouble, until_s = self.outages.get(route, ("", 0.0))
        return trouble if now_s < until_s else ""

    def latency_s(self, program: str, now_s: float, usual_s: float) -> float:
        """Return how long a call that begins now takes."""
        long_s, until_s = self.crawling.get(program, (0.0, 0.0))
        return (
            long_s if now_s < until_s else self.delay_s("llm", usual_s) + self.away_s("llm", now_s)
        )

    def clear(self) -> None:
        """End all troubles."""
        self.chances.clear()
        self.down_until_s.clear()
        self.slow_s.clear()
        self.outages.clear()
