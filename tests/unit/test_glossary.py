"""The glossary: each word lives somewhere."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/glossary.md").read_text("utf-8")


def section(title: str) -> list[tuple[str, ...]]:
    """Return the rows of the table under a heading."""
    text = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [tuple(cell.strip() for cell in line.split(" | ")) for line in lines[1:]]


def test_each_word_lives_somewhere_or_is_reserved() -> None:
    """A word names the file in which it lives, unless a later version will use it."""
    for word, meaning, where in section("Words"):
        named = re.fullmatch(r"`([\w/]+\.py)` \|", where)
        assert bool(named) != meaning.startswith("reserved: "), word
        assert named is None or (ROOT / named[1]).exists(), word
