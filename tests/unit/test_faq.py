"""The page of messages quotes what the program says."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/faq.md").read_text("utf-8")
# The texts of the source, with literals of several lines as one.
SOURCE = re.sub(
    r'"\s*\n\s*f?"',
    "",
    "\n".join(
        path.read_text("utf-8")
        for folder in ("agent", "producer", "schemas")
        for path in (ROOT / folder).rglob("*.py")
    ),
)


@pytest.mark.parametrize("message", re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE))
def test_a_message_is_one_of_the_program(message: str) -> None:
    """Each part of a message between names and numbers stands in the source."""
    assert [part for part in message.split("...") if part.strip() not in SOURCE] == []
