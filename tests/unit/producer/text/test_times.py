"""Times as a person writes them."""

from datetime import datetime

import pytest

from docllm.producer.text.times import moment, written
from docllm.schemas.errors import ConfigError

NOW = datetime(2026, 3, 1, 12, 0, 0)  # noqa: DTZ001 - the database's times are UTC without a zone


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", "2026-03-01T10:00:00Z"),
        ("2h ago", "2026-03-01T10:00:00Z"),
        (" 90s ", "2026-03-01T11:58:30Z"),
        ("1 d ago", "2026-02-28T12:00:00Z"),
        ("2026-01-31", "2026-01-31T00:00:00Z"),
        ("2026-01-31T08:30", "2026-01-31T08:30:00Z"),
        ("2026-01-31 08:30:15Z", "2026-01-31T08:30:15Z"),
        ("2026-01-31T08:30+05:30", "2026-01-31T03:00:00Z"),
        ("2026-01-31T00:30:00-01:00", "2026-01-31T01:30:00Z"),
    ],
)
def test_a_time_is_read(text: str, expected: str) -> None:
    """Durations count back from now; an ISO time is UTC unless it names its offset."""
    assert written(moment(text, NOW)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ago",
        "yesterday",
        "2h later",
        "-2h",
        "0h",
        "2",
        "2026-13-01",
        "2026-01-31T25:00",
        "9999999999d",
        "'; --",
        "999999d",
        "0001-01-01T00:00+14:00",
    ],
)
def test_anything_else_is_refused_with_examples(text: str) -> None:
    """Any other text, also a time beyond the calendar; the error shows it, with examples."""
    with pytest.raises(ConfigError, match="is not a time; write for example 2h"):
        moment(text, NOW)
