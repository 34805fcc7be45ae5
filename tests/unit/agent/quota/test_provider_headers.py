"""What is left of a provider's limits, by its headers."""

import pytest

from docllm.agent.quota.provider_headers import left, share_left


@pytest.mark.parametrize(
    ("headers", "share"),
    [
        ({}, None),
        (
            {
                "x-ratelimit-limit-requests": "500",
                "x-ratelimit-remaining-requests": "400",
                "x-ratelimit-limit-tokens": "30000",
                "x-ratelimit-remaining-tokens": "3000",
                "x-ratelimit-reset-tokens": "6ms",
            },
            0.1,
        ),
        (
            {
                "anthropic-ratelimit-input-tokens-limit": "1000",
                "anthropic-ratelimit-input-tokens-remaining": "250",
                "anthropic-ratelimit-input-tokens-reset": "2026-01-01T00:00:00Z",
            },
            0.25,
        ),
        # Azure's Responses API was seen to send these.
        ({"x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1"}, None),
        ({"x-ratelimit-limit-tokens": "0", "x-ratelimit-remaining-tokens": "0"}, None),
        ({"x-ratelimit-limit-tokens": "100"}, None),
        ({"x-ratelimit-limit-tokens": "1e999", "x-ratelimit-remaining-tokens": "5"}, None),
        ({"x-ratelimit-limit-requests": "10", "x-ratelimit-remaining-requests": "20"}, 1.0),
        ({"x-ratelimit-limit-requests": "10", "x-ratelimit-remaining-requests": "0"}, 0.0),
        ({"x-ratelimit-limit-requests": "10;w=60", "x-ratelimit-remaining-requests": "1"}, None),
    ],
)
def test_the_lowest_share_counts(headers: dict[str, str], share: float | None) -> None:
    """A header that cannot be read says nothing."""
    assert share_left(headers) == share


def test_what_is_left_is_read_by_kind() -> None:
    """Both forms are read; kinds that nobody knows, and what is no number, are left out."""
    assert left(
        {
            "x-ratelimit-remaining-requests": "400",
            "x-ratelimit-remaining-tokens": "-1",
            "x-ratelimit-remaining-project-tokens": "5",
            "anthropic-ratelimit-input-tokens-remaining": "250",
        }
    ) == {"requests": 400.0, "input_tokens": 250.0}
    assert left({}) == {}
