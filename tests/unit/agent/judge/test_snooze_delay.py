"""How long a snoozed task waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.agent.judge.snooze_delay import MAX_ASKED_S, asked_for, back_off, delay

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
        ({"retry-after": "1800014430"}, 30),
        ({"retry-after": "1800014430000"}, 30),
        ({"retry-after": "1m30s"}, 90),
        ({"retry-after": "2027-01-15T12:00:30Z"}, 30),
        ({"retry-after-ms": "999999999999"}, 86_400),
        ({"retry-after-ms": "-1"}, 0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "tomorrow"}, None),
        ({"retry-after": "Fri, 99 Jan 99999 12:00:30 GMT"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_the_providers_retry_headers_are_read(
    headers: dict[str, str], seconds: float | None
) -> None:
    """Seconds, decimals, milliseconds and dates are read and limited to a day.

    Any other text counts as missing.
    """
    assert asked_for(headers, NOON_S) == seconds


def test_a_date_is_read_by_the_senders_clock() -> None:
    """A date is read by its sender's clock.

    An agent whose clock is an hour slow must not wait an hour for half a minute.
    """
    headers = {
        "date": "Fri, 15 Jan 2027 12:00:00 GMT",
        "retry-after": "Fri, 15 Jan 2027 12:00:30 GMT",
    }

    assert asked_for(headers, NOON_S - 3600) == 30
    assert asked_for(headers | {"date": "some day"}, NOON_S) == 30


REQUESTS, TOKENS = "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"
LEFT_REQUESTS, LEFT_TOKENS = "x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("6m0s", 360),
        ("2m59.56s", 179.56),
        ("20ms", 0.02),
        ("500us", 0.0005),
        ("500µs", 0.0005),
        ("1h2m3s", 3723),
        ("2d", 86_400),
        ("33011.38", 33_011.38),
        ("1800014430", 30),
        ("1800014430000", 30),
        ("2027-01-15T12:00:30Z", 30),
        ("2027-01-15T13:00:30.5+01:00", 30.5),
        ("2027-01-15T12:00:30", 30),
        ("Fri, 15 Jan 2027 12:00:30 GMT", 30),
        ("9" * 20, 86_400),
        ("9" * 400, None),
        ("0", None),
        ("0s", None),
        ("-1", None),
        ("2027-01-15T11:59:30Z", None),
        ("6m 0s", None),
        ("1s!", None),
        ("soon", None),
        ("", None),
    ],
)
def test_forms_of_a_rate_limits_reset(text: str, seconds: float | None) -> None:
    """Durations, seconds, times since 1970 and dates are read.

    A past or unreadable time counts as missing.
    """
    wait_s = asked_for({REQUESTS: text}, NOON_S, limits=True)

    assert wait_s == (None if seconds is None else pytest.approx(seconds, rel=1e-6))


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({REQUESTS: "1s", TOKENS: "6m0s", LEFT_REQUESTS: "0", LEFT_TOKENS: "40000"}, 1),
        ({REQUESTS: "1s", TOKENS: "6m0s", LEFT_REQUESTS: "10", LEFT_TOKENS: "0"}, 360),
        ({REQUESTS: "1s", TOKENS: "6m0s", LEFT_REQUESTS: "0", LEFT_TOKENS: "0"}, 360),
        ({REQUESTS: "1s", TOKENS: "6m0s", LEFT_REQUESTS: "10", LEFT_TOKENS: "9"}, 360),
        ({REQUESTS: "1s", TOKENS: "6m0s"}, 360),
        ({REQUESTS: "1s", TOKENS: "6m0s", LEFT_REQUESTS: "-1", LEFT_TOKENS: "x"}, 360),
        ({REQUESTS: "-1", TOKENS: "2s", LEFT_REQUESTS: "0"}, 2),
        ({TOKENS: "7.66s", "retry-after": "3"}, 3),
        ({TOKENS: "7.66s", "retry-after-ms": "200"}, 0.2),
        ({TOKENS: "7.66s", "retry-after": "soon"}, 7.66),
        (
            {
                "anthropic-ratelimit-requests-reset": "2027-01-15T12:00:20Z",
                "anthropic-ratelimit-requests-remaining": "0",
            },
            20,
        ),
        (
            {
                "anthropic-ratelimit-input-tokens-reset": "2027-01-15T12:01:00Z",
                "anthropic-ratelimit-input-tokens-remaining": "9000",
                "anthropic-ratelimit-output-tokens-reset": "2027-01-15T12:00:10Z",
                "anthropic-ratelimit-output-tokens-remaining": "0",
            },
            10,
        ),
        ({"x-ratelimit-reset": "1800014415000", "x-ratelimit-remaining": "0"}, 15),
        (
            {"x-ratelimit-reset-tokens-minute": "11.4", "x-ratelimit-reset-requests-day": "33011"},
            33_011,
        ),
        ({"ratelimitbysize-reset": "14"}, 14),
        ({"x-preset": "5s", "reset": "5s", "x-ratelimit-limit-tokens": "90000"}, None),
    ],
)
def test_the_limit_that_is_used_up_is_waited_for(
    headers: dict[str, str], seconds: float | None
) -> None:
    """The task waits for the longest of the used-up limits, or of all if none is used up.

    Retry-After takes precedence.
    """
    wait_s = asked_for(headers, NOON_S, limits=True)

    assert wait_s == (None if seconds is None else pytest.approx(seconds))


def test_limits_are_waited_for_only_where_they_are_the_cause() -> None:
    """A failure that is not a rate limit does not wait for one."""
    assert asked_for({TOKENS: "6m0s", LEFT_TOKENS: "0"}, NOON_S) is None


@given(st.text(max_size=60) | st.from_regex(r"[0-9.:T+-]{1,30}[smhdZ]?", fullmatch=True))
def test_any_header_is_survived(text: str) -> None:
    """No header text raises an error, or makes a task wait longer than a day."""
    for headers in (
        {"retry-after": text},
        {"retry-after-ms": text},
        {REQUESTS: text, LEFT_REQUESTS: text},
    ):
        asked = asked_for(headers, NOON_S, limits=True)

        assert asked is None or 0 <= asked <= MAX_ASKED_S


def test_back_off_doubles_within_its_bounds() -> None:
    """The back-off begins between 1 and 2 s, doubles, and ends between 30 and 60 s."""
    assert [back_off(snoozes, 0.0) for snoozes in (0, 1, 2, 5, 50)] == [1, 2, 4, 30, 30]
    assert [back_off(snoozes, 1.0) for snoozes in (0, 1, 2, 5, 50)] == [2, 4, 8, 60, 60]


def test_tasks_with_the_same_wait_come_back_at_different_times() -> None:
    """Jitter is added to the provider's wait, never subtracted, so tasks return apart."""
    waits = [
        delay({"retry-after": "100"}, snoozes=0, jitter=jitter, utc_s=NOON_S)
        for jitter in (0.0, 0.5, 1.0)
    ]

    assert waits == [100, 105, 110]
