"""Whether a route takes calls: it pauses while the provider asks for time or does not answer. Pure; time is passed in.

One failure in a row of successes is the task's affair. A run of them is the route's: it pauses, longer each time, and then one
call goes first. No attempt is counted for any of this.
"""

from dataclasses import dataclass

from agent.outcome import Outcome, Retry, Snooze, Succeeded

# The provider answered, and said that it takes no calls; half of the wait is left to the fleet, the task waits for all of it.
REFUSALS = frozenset({"RATE", "RAMP", "CAPACITY"})
# The account or its key is at fault when several calls in a row say so; one alone may be a task that names a wrong model.
LOCKED = frozenset({"MONEY", "AUTH"})
OUTAGES = frozenset({"SERVER", "NETWORK", "AMBIGUOUS"})
_LONGEST_REFUSAL_S, _FIRST_S, _LONGEST_S = 5.0, 1.0, 30.0
_RUN, _LOCKED_RUN = 5, 3


@dataclass(slots=True)
class Route:
    """One model at one provider account."""

    name: str
    until_s: float = 0.0
    reason: str = ""
    _failures: int = 0
    _locked: int = 0
    _trips: int = 0

    def room(self, now_s: float, running: int, slots: int) -> int:
        """Return how many calls may be started now."""
        if now_s < self.until_s:
            return 0
        return max(0, (1 if self._trips else slots) - running)

    def note(self, outcome: Outcome, now_s: float) -> None:
        """Learn from how a call ended."""
        if isinstance(outcome, Succeeded):
            self._failures = self._locked = self._trips = 0
            self.reason = ""
        elif isinstance(outcome, Snooze | Retry):
            self._snoozed(outcome, now_s)

    def _snoozed(self, outcome: Snooze | Retry, now_s: float) -> None:
        kind = outcome.failure.error_class
        if kind in REFUSALS:
            self._pause(now_s, min(outcome.delay_s / 2, _LONGEST_REFUSAL_S), outcome)
        elif kind in LOCKED:
            self._locked += 1
            if self._locked >= _LOCKED_RUN:
                self._trips += 1
                self._pause(now_s, _LONGEST_S, outcome)
        elif kind in OUTAGES:
            self._failures += 1
            if self._failures >= _RUN or self._trips:
                self._trips += self.until_s <= now_s
                self._pause(now_s, min(_LONGEST_S, _FIRST_S * 2 ** min(self._trips - 1, 10)), outcome)

    def _pause(self, now_s: float, delay_s: float, outcome: Snooze | Retry) -> None:
        self.until_s = max(self.until_s, now_s + delay_s)
        self.reason = f"{outcome.failure.error_class}: {outcome.failure.text}"

    def notice(self, now_s: float) -> str:
        """Return why nothing starts on this route, for a person; empty when it takes calls."""
        if now_s < self.until_s:
            return f"route {self.name} waits {self.until_s - now_s:.0f} s: {self.reason}"[:300]
        return f"route {self.name} tries one call: {self.reason}"[:300] if self._trips else ""


class Routes:
    """The routes of one agent, by name."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}

    def of(self, name: str) -> Route:
        """Return a route."""
        return self._routes.setdefault(name, Route(name))

    def room(self, name: str, now_s: float, running: int, slots: int) -> int:
        """Return how many calls may be started now on a route."""
        return self.of(name).room(now_s, running, slots)

    def ended(self, name: str, outcome: Outcome, now_s: float) -> Outcome:
        """Learn from how a call ended; return what is to be settled."""
        self.of(name).note(outcome, now_s)
        return outcome

    def closed(self, name: str, now_s: float) -> bool:
        """Return whether a route takes no calls but probes."""
        return bool(self.of(name).notice(now_s))

    def notice(self, now_s: float) -> str:
        """Return why nothing starts, for a person."""
        return "; ".join(filter(None, (route.notice(now_s) for route in self._routes.values())))[:500]
