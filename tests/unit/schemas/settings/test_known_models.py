"""What common models take."""

import pytest

from docllm.schemas.settings.known_models import KNOWN_TOKENS, known_tokens


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("gpt-4o", 128_000),
        ("gpt-4o-mini", 128_000),
        ("gpt-4", None),
        ("gpt-4-32k", None),
        ("claude-3-5-sonnet-20241022", 200_000),
        ("gpt-5-chat-latest", 128_000),
        ("gpt-5.1-2025-11-13", 400_000),
        ("claude-sonnet-4-5-20250929", 200_000),
        ("mistral/mistral-large-2411", 128_000),
        ("mistral-large-latest", 262_144),
        ("o1", 200_000),
        ("o10", None),
        ("", None),
    ],
)
def test_a_known_name_covers_its_versions_and_nothing_else(model: str, tokens: int | None) -> None:
    """A longer name that only begins alike is another model."""
    assert known_tokens(model) == tokens
    assert all(limit > 4096 for limit in KNOWN_TOKENS.values())
