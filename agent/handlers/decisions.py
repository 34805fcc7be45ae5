"""The exceptions by which a handler decides about its task, and hears that its time is over.

Any other error is judged by the rules of the task's type.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from docllm.agent.handlers.json_values import json_bytes

MAX_STATE_BYTES = 64 << 10
_YEARS = range(1000, 3000)  # as in a line


class SoftLimitError(Exception):
    """The attempt has passed `soft_limit_s` of its type; the next call raises this, once.

    A handler may catch it to end with what it has. Otherwise the attempt has failed.
    """


class GiveUpError(Exception):
    """The task is dead until somebody replays it; the text is the reason shown to a person."""


class TryAgainError(Exception):
    """The attempt counts, and the next one comes after at least `after_s` seconds, or `at` a time.

    The text is the reason shown to a person. The wait may be of any length. Raises ValueError for a
    wait that is negative or not a number, and for a time without a time zone.
    """

    def __init__(
        self, reason: str, *, after_s: float | None = None, at: datetime | None = None
    ) -> None:
        self.after_s, self.at = _wait(after_s, at)
        super().__init__(reason)


class ComeBackError(Exception):
    """The task runs again after `after_s` seconds, or `at` a time, and the attempt does not count.

    `state` is a dict that JSON can hold, of at most 64 KiB: the next run finds it in
    `context.state`. Without it, what is there stays. A wait below 1 s is 1 s. Raises ValueError and
    TypeError for values that are not valid.
    """

    def __init__(
        self,
        *,
        after_s: float | None = None,
        at: datetime | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        if after_s is None and at is None:
            raise ValueError("say when to come back: after_s or at")
        self.after_s, self.at = _wait(after_s, at)
        self.state_json = None if state is None else state_json(state)
        super().__init__()

    def __str__(self) -> str:
        """Return what a log shows if something catches it."""
        return "its handler comes back later"

    def __reduce__(self) -> Any:
        """Pickle what it says; the defaults of an error pass no keywords."""
        return type(self).__new__, (type(self),), vars(self)


class AttemptEndedError(Exception):
    """A call was not made, or a task not ordered, because the attempt had ended before.

    The handler still runs, or has left a thread or an asyncio task behind, and the error ends it. A
    handler must not catch it.
    """


def state_json(state: Mapping[str, Any]) -> bytes:
    """Return what a handler keeps as JSON. Raises TypeError and ValueError if it cannot be kept."""
    if not isinstance(state, dict):
        raise TypeError(f"state is a {type(state).__name__}; give a dict")
    try:
        written = json_bytes(state, "state")
    except TypeError as error:
        raise TypeError(
            f"state has what JSON cannot hold ({error}); use dicts with text keys, lists, texts "
            "and numbers"
        ) from None
    if len(written) > MAX_STATE_BYTES:
        raise ValueError(
            f"state has {len(written):,} bytes as JSON, at most {MAX_STATE_BYTES:,} are kept; "
            "store the rest elsewhere, and keep its name"
        )
    return written


def _wait(after_s: float | None, at: datetime | None) -> tuple[float, datetime | None]:
    """Return a valid wait: seconds, and the time in UTC."""
    if after_s is not None and at is not None:
        raise ValueError("give after_s or at, not both")
    if at is not None:
        if not isinstance(at, datetime) or at.utcoffset() is None:
            raise ValueError(
                f"at is {at!r}; give a datetime with a time zone, such as datetime.now(UTC)"
            )
        if at.year not in _YEARS:
            raise ValueError(f"at is {at}; give a time of the years 1000 to 2999")
        return 0.0, at.astimezone(UTC)
    try:
        if after_s is None or after_s >= 0:
            return float(after_s or 0), None
    except (TypeError, OverflowError):
        pass
    raise ValueError(f"after_s is {after_s!r}; give a number of seconds from 0 on")
