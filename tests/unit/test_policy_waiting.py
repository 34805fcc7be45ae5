"""How long a snoozed task waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.policy.waiting import LONGEST_ASKED_S, asked_for, back_off, delay

NOON_S = 1_800_014_400.0  # Fri, 15 Jan 2027 12:00:00 GMT


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": " 3 "}, 3),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "999999999"}, 86_400),
        ({"retry-after": "Fri, 15 Jan 2027 12:00:30 GMT"}, 30),
        ({"retry-after": "Fri, 15 Jan 2027 11:00:00 GMT"}, 0),
        ({"retry-after": "Fri, 15 Jan 2027 12:00:30 -0000"}, 30),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": "Fri, 99 Jan 99999 12:00:30 GMT"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_what_the_provider_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, decimals, milliseconds and dates are read and clamped to a day; anything else counts as not said."""
    assert asked_for(headers, NOON_S) == seconds


@given(st.text(max_size=60))
def test_any_header_is_survived(text: str) -> None:
    """No header text raises, or asks for more than a day."""
    asked = asked_for({"retry-after": text, "retry-after-ms": text}, NOON_S)

    assert asked is None or 0 <= asked <= LONGEST_ASKED_S


def test_back_off_doubles_within_its_bounds() -> None:
    """It begins between 1 and 2 s, doubles, and ends between 30 and 60 s."""
    assert [back_off(snoozes, 0.0) for snoozes in (0, 1, 2, 5, 50)] == [1, 2, 4, 30, 30]
    assert [back_off(snoozes, 1.0) for snoozes in (0, 1, 2, 5, 50)] == [2, 4, 8, 60, 60]


def test_tasks_that_were_told_the_same_come_back_apart() -> None:
    """Jitter is added to what the provider asks for, never taken from it."""
    told = [delay({"retry-after": "100"}, snoozes=0, jitter=jitter, utc_s=NOON_S) for jitter in (0.0, 0.5, 1.0)]

    assert told == [100, 105, 110]
