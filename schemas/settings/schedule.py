"""The hours of the day in which a type of task runs, such as `22:00-06:00 UTC`. Pure."""

import re
from functools import cache

DAY_S = 86_400
_FORM = re.compile(r"([01]\d|2[0-3]):([0-5]\d) ?- ?([01]\d|2[0-3]):([0-5]\d) UTC")


def schedule(value: object) -> str:
    """Return the hours in one spelling. Raises ValueError with the right form."""
    hours = _FORM.fullmatch(value.strip()) if isinstance(value, str) else None
    if hours is None or hours[1] + hours[2] == hours[3] + hours[4]:
        raise ValueError('write the hours of a day in UTC, for example "22:00-06:00 UTC"')
    return f"{hours[1]}:{hours[2]}-{hours[3]}:{hours[4]} UTC"


def begins_in_s(hours: str, utc_s: float) -> float:
    """Return the time until these hours begin; 0 during them."""
    begin_s, length_s = _span(hours)
    past_s = (utc_s - begin_s) % DAY_S
    return 0.0 if past_s < length_s else DAY_S - past_s


@cache
def _span(hours: str) -> tuple[int, int]:
    """Return when in a day the hours begin, and how long they last."""
    begin_h, begin_min, end_h, end_min = map(int, _FORM.fullmatch(hours).groups())  # type: ignore[union-attr]
    begin_s, end_s = (begin_h * 60 + begin_min) * 60, (end_h * 60 + end_min) * 60
    return begin_s, (end_s - begin_s) % DAY_S
