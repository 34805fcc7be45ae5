"""Logs a server's outage: when it begins, once a minute while it lasts, and when it ends.

All parts of a process that call one server share one `Outage`, from any thread, so that no part
logs failures of its own.
"""

import logging
import threading
from typing import NamedTuple

from docllm.schemas.codes import Code
from docllm.schemas.runtime.clock import Clock

log = logging.getLogger(__name__)

PATIENCE_S = 3.0
MESSAGE_EVERY_S = 60.0  # between two messages of one outage


LOG_EVERY_S = 60.0


class Words(NamedTuple):
    """The verbs of the three messages: at the beginning, during and at the end of an outage.

    `code` is that of the first two.
    """

    begins: str
    lasts: str
    ends: str
    code: Code


SERVER = Words("does not answer", "has not answered", "answers again", Code.SERVER_AWAY)
DUTY = Words("fails", "has failed", "works again", Code.DUTY_FAILS)


class Outage:
    """The failures of one server, or of one duty.

    `name` is used inside a sentence and holds no secret. `hope` says what happens meanwhile.
    Failures that last less than `patience_s` are not logged. An outage ends with the first answer
    after `patience_s` without failures. So if one broker of three is unreachable, its failures do
    not log a line each.
    """

    def __init__(
        self,
        *,
        name: str,
        clock: Clock,
        words: Words = SERVER,
        patience_s: float = PATIENCE_S,
        hope: str = "docllm tries again",
    ) -> None:
        self._name = name
        self._clock = clock
        self._words = words
        self._patience_s = patience_s
        self._hope = hope
        self._lock = threading.Lock()
        self._since_s: float | None = None
        self._failed_at_s = 0.0
        self._logged_at_s: float | None = None
        self._tries = 0

    @property
    def logged(self) -> bool:
        """Whether an outage was logged and has not ended."""
        return self._logged_at_s is not None

    @property
    def lasts_s(self) -> float:
        """How long the server has been failing, 0 if it does not fail."""
        since_s = self._since_s
        return 0.0 if since_s is None else self._clock.now_s() - since_s

    def failed(self, error: object, *, after_s: float = 0.0) -> None:
        """Record a failed try that took `after_s`.

        `error` is shown to a person, so it must hold no secret.
        """
        with self._lock:
            now_s = self._failed_at_s = self._clock.now_s()
            if self._since_s is None:
                self._since_s, self._tries = now_s - after_s, 0
            self._tries += 1
            self._log_failure(error, now_s, now_s - self._since_s)

    def answered(self) -> None:
        """Record an answer of the server."""
        if self._since_s is None:
            return
        with self._lock:
            now_s = self._clock.now_s()
            if self._since_s is None or now_s - self._failed_at_s < self._patience_s:
                return
            if self._logged_at_s is not None:
                message = "%s %s, after %.0f s and %d tries"
                log.info(message, self._name, self._words.ends, now_s - self._since_s, self._tries)
            self._since_s = self._logged_at_s = None

    def _log_failure(self, error: object, now_s: float, lasts_s: float) -> None:
        if self._logged_at_s is None and lasts_s >= self._patience_s:
            self._logged_at_s = now_s
            log.warning(
                "%s %s (%s); %s",
                self._name,
                self._words.begins,
                error,
                self._hope,
                extra={"code": self._words.code},
            )
        elif self._logged_at_s is not None and now_s - self._logged_at_s >= MESSAGE_EVERY_S:
            self._logged_at_s = now_s
            log.warning(
                "%s %s for %.0f s, %d tries; newest error: %s",
                self._name,
                self._words.lasts,
                lasts_s,
                self._tries,
                error,
                extra={"code": self._words.code},
            )


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
