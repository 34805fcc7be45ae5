"""The hours in which a type runs."""

import pytest

from docllm.schemas.settings.schedule import DAY_S, begins_in_s, schedule

HOUR_S = 3600


@pytest.mark.parametrize(
    ("hours", "at_h", "wait_h"),
    [
        ("22:00-06:00 UTC", 21.5, 0.5),
        ("22:00-06:00 UTC", 22, 0),
        ("22:00-06:00 UTC", 5.99, 0),
        ("22:00-06:00 UTC", 6, 16),
        ("09:00-17:00 UTC", 8, 1),
        ("09:00-17:00 UTC", 12, 0),
        ("09:00-17:00 UTC", 17, 16),
        ("00:00-23:59 UTC", 23.995, 1 / 200),
    ],
)
def test_the_wait_until_the_hours_begin(hours: str, at_h: float, wait_h: float) -> None:
    """Hours may span midnight; the end itself is outside."""
    assert begins_in_s(hours, 20_000 * DAY_S + at_h * HOUR_S) == pytest.approx(wait_h * HOUR_S)


@pytest.mark.parametrize("text", ["22:00-06:00 UTC", " 22:00 - 06:00 UTC "])
def test_hours_have_one_spelling(text: str) -> None:
    """Agents with equal hours have equal settings."""
    assert schedule(text) == "22:00-06:00 UTC"


@pytest.mark.parametrize(
    "text", ["22:00-06:00", "22-06 UTC", "24:00-06:00 UTC", "06:00-06:00 UTC", "", 22, None]
)
def test_other_forms_are_refused_with_the_right_one(text: object) -> None:
    """Without a zone, the hours would be those of whatever machine an agent runs on."""
    with pytest.raises(ValueError, match='for example "22:00-06:00 UTC"'):
        schedule(text)
