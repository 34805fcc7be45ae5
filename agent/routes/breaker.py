"""The state machine of one breaker, on pybreaker: its states, its transitions, its listener.

pybreaker's `call` holds a lock and counts a cancelled call as a failure. So calls are not made
through pybreaker; their finished outcomes are replayed to it. Its half-open state lets every
call pass, so docllm implements the pace of probes and the window of outcomes itself. Its
clock is not used, so nothing here depends on the machine's time of day.
"""

from collections.abc import Callable
from datetime import datetime

from pybreaker import (
    STATE_CLOSED,
    STATE_OPEN,
    CircuitBreaker,
    CircuitBreakerListener,
    CircuitBreakerState,
    CircuitBreakerStorage,
)

from docllm.agent.routes.window import OutcomeWindow

_FAIL_MAX = 1


class Breaker:
    """A breaker of pybreaker, to which outcomes are replayed. `changed` must not raise."""

    def __init__(self, *, window: OutcomeWindow, changed: Callable[[bool], None]) -> None:
        self._storage = _Storage(window)
        self._breaker = CircuitBreaker(
            fail_max=_FAIL_MAX,
            reset_timeout=0,
            state_storage=self._storage,
            listeners=[_Listener(changed)],
            throw_new_error_on_trip=False,
        )

    @property
    def stopped(self) -> bool:
        """Whether the route is stopped: it takes no calls but probes."""
        return self._storage.state != STATE_CLOSED

    def report(self, now_s: float, *, failed: bool) -> None:
        """Replay a finished outcome.

        While the route is stopped, the outcome is that of a probe: it decides whether calls pass
        again.
        """
        self._storage.now_s = now_s
        try:
            self._breaker.call(_fail if failed else _succeed)
        except _CallFailedError:
            return

    def stop(self) -> None:
        """Stop the route, whatever the window says."""
        self._breaker.open()

    def resume(self) -> None:
        """Let calls pass again: the route is open, which pybreaker calls a closed breaker."""
        self._breaker.close()


class _CallFailedError(Exception):
    """The error of a replayed failure."""


def _succeed() -> None:
    """Return, as a replayed success."""


def _fail() -> None:
    raise _CallFailedError


class _Storage(CircuitBreakerStorage):
    """Keeps the breaker's state in memory.

    pybreaker counts failures in a row. Here the window replaces that count, and decides when there
    are too many failures.
    """

    def __init__(self, window: OutcomeWindow) -> None:
        super().__init__("window")
        self.now_s = 0.0
        self._window = window
        self._state = STATE_CLOSED

    @property
    def state(self) -> str:
        return self._state

    @state.setter
    def state(self, state: str) -> None:
        self._state = state
        self._window.clear()

    def increment_counter(self) -> None:
        """Add a failure to the window."""
        self._window.add(self.now_s, failed=True)

    def reset_counter(self) -> None:
        """Add a success to the window."""
        self._window.add(self.now_s, failed=False)

    @property
    def counter(self) -> int:
        return _FAIL_MAX if self._window.is_bad else 0

    @property
    def success_counter(self) -> int:
        return 1

    @property
    def opened_at(self) -> datetime | None:
        return None

    @opened_at.setter
    def opened_at(self, datetime: datetime) -> None:
        """Ignore the time: the route keeps it by its own clock."""


class _Listener(CircuitBreakerListener):
    """Reports when the breaker stops the route or lets it go.

    The breaker is half-open while a probe's outcome is replayed; that is not a change.
    """

    def __init__(self, changed: Callable[[bool], None]) -> None:
        self._changed = changed
        self._stopped = False

    def state_change(
        self,
        _breaker: CircuitBreaker,
        _former: CircuitBreakerState | None,
        new: CircuitBreakerState,
    ) -> None:
        """Pass on a change."""
        stopped = new.name == STATE_OPEN or (self._stopped and new.name != STATE_CLOSED)
        if stopped != self._stopped:
            self._stopped = stopped
            self._changed(stopped)
