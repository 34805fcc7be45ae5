"""Rates and times of what goes on."""

import pytest

from docllm.producer.text.pace import PaceMeter, left_text, rate_text


def test_a_pace_is_that_of_the_last_minute() -> None:
    """What was fast an hour ago tells nothing about now."""
    pace = PaceMeter()
    assert (pace.per_s, pace.left_s(10)) == (None, None)
    pace.see(0, 100.0)
    assert pace.per_s is None
    pace.see(1000, 110.0)
    assert [pace.per_s, pace.left_s(500)] == [100.0, 5.0]

    for passed_s in range(1, 101):
        pace.see(1000 + passed_s, 110.0 + passed_s)

    assert pace.per_s == pytest.approx(1.0)


def test_what_stands_still_has_no_end() -> None:
    """Without progress nobody knows when it will be done."""
    pace = PaceMeter()
    pace.see(5, 0.0)
    pace.see(5, 30.0)

    assert (pace.per_s, pace.left_s(5)) == (0.0, None)


def test_rates_and_times_are_short() -> None:
    """A person reads them beside a bar."""
    assert (rate_text(None), rate_text(0.26), rate_text(1234.5)) == (
        "",
        "0.3 per s",
        "1,234 per s",
    )
    assert (left_text(None), left_text(3725.9)) == ("", "1:02:05 left")
