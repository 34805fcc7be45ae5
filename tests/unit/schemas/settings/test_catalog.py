"""The catalogue of settings: meanings for people, and the defaults of the program."""

import pytest

from docllm.schemas.settings.catalog import NAMED_SETTINGS, SETTINGS


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("llm.timeout_s", "600"),
        ("otel.ratio", "0.01"),
        ("inbox.enabled", "true"),
        ("retry.tiers", "30s,5m,1h"),
        ("llm.charge", "max_then_refund"),
        ("llm.headers", ""),
        ("redis.url", ""),
    ],
)
def test_a_default_is_shown_as_a_person_writes_it(name: str, default: str) -> None:
    assert SETTINGS[name].default == default


def test_each_setting_has_a_meaning() -> None:
    """The page of settings leaves no meaning open, and each fits a table's cell."""
    for meaning in (
        *(setting.meaning for setting in SETTINGS.values()),
        *(setting.meaning for parts in NAMED_SETTINGS.values() for setting in parts.values()),
    ):
        assert meaning
        assert "|" not in meaning
        assert "\n" not in meaning
