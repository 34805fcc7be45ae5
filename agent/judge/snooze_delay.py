"""Decides how long a snoozed task waits, and reads what wait a provider asks for.

All times are in seconds. The jitter, from 0 to 1, is passed in.
"""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_ASKED_S = 86_400.0
# A longer wait that one refusal asks for is doubted: the task asks again after this time. If the
# provider refuses everything, the route as a whole waits, with one call from time to time.
BELIEVED_S = 600.0
MAX_BACK_OFF_S = 60.0
_DOUBLINGS = 6
# Above the first value, a number is seconds since 1970; above the second, milliseconds since 1970.
_EPOCH_S = 1e9
_EPOCH_MS = 1e11
_PART = r"\d++(?:\.\d++)?(?:ms|us|µs|ns|d|h|m|s)"
_DURATION = re.compile(rf"(?>(?:{_PART}){{1,9}})")
_PARTS = re.compile(r"(?<![\d.])([\d.]++)([a-zµ]++)")
_UNIT_S = {
    "d": 86_400.0,
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "ns": 1e-9,
}


def delay(
    headers: Mapping[str, str], *, snoozes: int, jitter: float, utc_s: float, limits: bool = False
) -> float:
    """Return how long to wait: a little longer than the provider asks for, or else 1 to 60 s.

    The back-off of 1 to 60 s grows with `snoozes`, the snoozes in a row.
    """
    asked = asked_for(headers, utc_s, limits=limits)
    if asked is None:
        return back_off(snoozes, jitter)
    return believed(asked) + jitter * max(1.0, believed(asked) / 10)


def believed(asked_s: float) -> float:
    """Return for how long a task waits if its provider asks for this wait."""
    return min(asked_s, BELIEVED_S)


def back_off(snoozes: int, jitter: float) -> float:
    """Return 1 to 2 s at first, doubling to between 30 and 60 s."""
    return min(MAX_BACK_OFF_S, 2.0 ** min(snoozes + 1, _DOUBLINGS)) / 2 * (1 + jitter)


def asked_for(headers: Mapping[str, str], utc_s: float, *, limits: bool = False) -> float | None:
    """Return the wait that `retry-after-ms` or `retry-after` asks for, at most a day.

    If neither header can be read, return the wait for the rate limits that other headers report
    (with `limits`), or else None. A date is meant by the provider's clock, so it is compared with
    the reply's own date: the clock here may be wrong.
    """
    replied_s = _until(headers.get("date", "").strip(), 0.0)
    utc_s = utc_s if replied_s is None else replied_s
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return clamped(milliseconds / 1000)
    seconds = _seconds(headers.get("retry-after", ""), utc_s)
    if seconds is None and limits:
        seconds = _limits_reset(headers, utc_s)
    return None if seconds is None else clamped(seconds)


def clamped(seconds: float) -> float:
    """Return a wait that is not negative and not above a day."""
    return min(max(seconds, 0.0), MAX_ASKED_S)


def _limits_reset(headers: Mapping[str, str], utc_s: float) -> float | None:
    """Return the wait until the used-up limits are full again.

    If none is used up, it is the wait for all limits. Limits are recognized by the form of their
    headers alone, `...ratelimit-...reset...`, because each provider counts other things, over other
    times.
    """
    resets = dict(_resets(headers, utc_s))
    used_up = [
        seconds
        for name, seconds in resets.items()
        if _number(headers.get(name.replace("reset", "remaining"), "")) == 0
    ]
    return max(used_up or resets.values(), default=None)


def _resets(headers: Mapping[str, str], utc_s: float) -> Iterator[tuple[str, float]]:
    """Yield header names with readable waits; times in the past are skipped."""
    for name, text in headers.items():
        if "ratelimit" in name and "reset" in name.split("-"):
            seconds = _seconds(text, utc_s)
            if seconds is not None and seconds > 0:
                yield name, seconds


def _seconds(text: str, utc_s: float) -> float | None:
    """Return the wait that a header means; None if it cannot be read.

    It may be a number of seconds, a duration such as `6m0s`, a date, or a time since 1970.
    """
    number = _number(text)
    if number is None:
        return _duration(text.strip()) or _until(text.strip(), utc_s)
    if number > _EPOCH_S:
        return (number / 1000 if number > _EPOCH_MS else number) - utc_s
    return number


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _duration(text: str) -> float | None:
    if _DURATION.fullmatch(text) is None:
        return None
    return sum(float(number) * _UNIT_S[unit] for number, unit in _PARTS.findall(text))


def _until(text: str, utc_s: float) -> float | None:
    """Return the time until an HTTP date or an ISO date; a date without a zone is UTC."""
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            date = read(text)
            return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - utc_s
        except (ValueError, OverflowError):
            continue
    return None
