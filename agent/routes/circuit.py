"""Decides by the outcomes of its calls whether a route is stopped. Pure.

pybreaker keeps the state: closed, which is a route that takes calls, or open, which is a stopped
one. Its own call, count of failures, half-open state and clock are not used: its call holds a lock
and counts a cancelled call as a failure, and its half-open state lets every call pass. So the
window of outcomes decides when it opens, and the outcome of a probe when it closes.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pybreaker import CircuitBreaker

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
    """The outcomes since the circuit's last change.

    They are bad if there is a run of failures, or if half of the last 200 failed. The window is a
    number of calls, because a window of time alone is slow to show a failure.
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


class Circuit:
    """Decides by reported outcomes whether the route is stopped.

    `changed` is called each time this changes. It must not raise.
    """

    def __init__(self, *, run: int, changed: Callable[[bool], None]) -> None:
        self._window = OutcomeWindow(run=run)
        self._changed = changed
        self._breaker: CircuitBreaker | None = None  # none until the first stop

    @property
    def stopped(self) -> bool:
        """Whether the route is stopped: it takes no calls but probes."""
        return self._breaker is not None and self._breaker.current_state == "open"

    def report(self, now_s: float, *, failed: bool) -> None:
        """Note a finished outcome.

        While the route is stopped, the outcome is that of a probe: it decides whether calls pass
        again.
        """
        if self.stopped:
            if not failed:
                self.resume()
            return
        self._window.add(now_s, failed=failed)
        if failed and self._window.is_bad:
            self.stop()

    def stop(self) -> None:
        """Stop the route, whatever the window says."""
        if self.stopped:
            return
        if self._breaker is None:
            # It imports much, which an agent needs at its first stop only.
            from pybreaker import CircuitBreaker  # noqa: PLC0415

            self._breaker = CircuitBreaker(throw_new_error_on_trip=False)
        self._breaker.open()
        self._window.clear()
        self._changed(True)  # noqa: FBT003 - the listener's form

    def resume(self) -> None:
        """Let calls pass again: the route is open, which pybreaker calls a closed breaker."""
        if self._breaker is not None and self.stopped:
            self._breaker.close()
            self._window.clear()
            self._changed(False)  # noqa: FBT003 - the listener's form
