"""How long to wait: what the provider asks for, or else a back-off. All in seconds; the jitter, from 0 to 1, is passed in."""

import math
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

LONGEST_ASKED_S = 86_400.0
LONGEST_BACK_OFF_S = 60.0
_DOUBLINGS = 6


def delay(headers: Mapping[str, str], *, snoozes: int, jitter: float, utc_s: float) -> float:
    """Return how long to wait: a little longer than the provider asks for, or 1 to 60 s by how often in a row it was snoozed."""
    asked = asked_for(headers, utc_s)
    return back_off(snoozes, jitter) if asked is None else asked + jitter * max(1.0, asked / 10)


def back_off(snoozes: int, jitter: float) -> float:
    """Return 1 to 2 s at first, doubling to between 30 and 60 s."""
    return min(LONGEST_BACK_OFF_S, 2.0 ** min(snoozes + 1, _DOUBLINGS)) / 2 * (1 + jitter)


def asked_for(headers: Mapping[str, str], utc_s: float) -> float | None:
    """Return what `retry-after-ms` or `retry-after` (seconds or an HTTP date) asks for, within a day; None when neither can be read."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return clamped(milliseconds / 1000)
    text = headers.get("retry-after", "")
    seconds = _number(text)
    if seconds is None:
        seconds = _until(text, utc_s)
    return None if seconds is None else clamped(seconds)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _until(text: str, utc_s: float) -> float | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - utc_s


def clamped(seconds: float) -> float:
    """Return a wait that is not negative and not above a day."""
    return min(max(seconds, 0.0), LONGEST_ASKED_S)
