"""The text of an answer that is a string or a list of parts."""

import pytest

from docllm.schemas.task.result.message_text import text_of

TEXT = {"type": "text", "text": "Fine."}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Fine.", "Fine."),
        (None, None),
        ([TEXT], "Fine."),
        ([{"type": "reasoning", "text": "hm"}, TEXT, TEXT], "Fine.Fine."),
        ([{"type": "text", "text": None}, 7, TEXT], "Fine."),
        ([], []),
        ([{"type": "image"}], [{"type": "image"}]),
    ],
)
def test_the_text_parts_are_joined(content: object, text: object) -> None:
    """A list without text stays a list, so that its judge can refuse it."""
    assert text_of(content) == text
