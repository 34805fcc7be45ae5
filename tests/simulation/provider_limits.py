"""The limits that a simulation's provider enforces: it refuses calls beyond them.

It has no part of the product in it. A burst is allowed, as providers do. A call that ends without
an answer costs no tokens, and one whose program was killed has ended.
"""

from collections.abc import Mapping

from tests.simulation.eventloop import PROCESS, Process

TOKENS_IN, TOKENS_OUT = 10, 5  # of each call
TOKENS = TOKENS_IN + TOKENS_OUT
_BURST = 30.0  # calls
_MINUTE_S = 60.0


class ProviderLimits:
    """The provider's count of the calls of one account."""

    def __init__(self) -> None:
        self._rates: dict[str, float] = {}  # a second
        self._levels: dict[str, float] = {}
        self._most: int | None = None
        self._most_of_day: int | None = None
        self._day, self._used = -1, 0
        self._filled_s = 0.0
        self._running: dict[int, Process | None] = {}

    def allow(self, quota: Mapping[str, int], share: float) -> None:
        """Enforce a share of these limits from now on."""
        costs = {"rpm": 1, "tpm": TOKENS}
        self._rates = {name: share * quota[name] / _MINUTE_S for name in costs if name in quota}
        self._levels = {name: _BURST * costs[name] for name in self._rates}
        if "in_flight" in quota:
            self._most = max(1, int(share * quota["in_flight"]))
        self._most_of_day = quota.get("rpd")

    def lift_the_day(self) -> None:
        """Allow any number of calls of a day from now on."""
        self._most_of_day = None

    def begin(self, number: int, now_s: float, day: int, *, counts: bool = True) -> bool:
        """Charge for a call and return True, or refuse it.

        `counts` says whether the call is one of the day's.
        """
        if day != self._day:
            self._day, self._used = day, 0
        if counts and self._most_of_day is not None and self._used >= self._most_of_day:
            return False
        self._running = {
            call: process
            for call, process in self._running.items()
            if process is None or process.alive
        }
        costs = {"rpm": 1.0, "tpm": float(TOKENS)}
        for name, rate in self._rates.items():
            filled = self._levels[name] + rate * (now_s - self._filled_s)
            self._levels[name] = min(_BURST * costs[name], filled)
        self._filled_s = now_s
        short = any(level < costs[name] for name, level in self._levels.items())
        if short or (self._most is not None and len(self._running) >= self._most):
            return False
        for name in self._levels:
            self._levels[name] -= costs[name]
        self._running[number] = PROCESS.get()
        self._used += counts
        return True

    def end(self, number: int, *, answered: bool) -> None:
        """Note the end of a call; give its tokens back if it got no answer."""
        if number in self._running:
            del self._running[number]
            if not answered and "tpm" in self._levels:
                self._levels["tpm"] += TOKENS
