"""A document is split at borders that a reader would choose, and nothing of it is lost."""

import random
from itertools import pairwise

import pytest

from docllm.agent.handlers.builtin.parts import split

PARAGRAPHS = "\n\n".join(f"Paragraph {number} says something of {number}." for number in range(60))


def test_a_short_text_is_one_part() -> None:
    """Nothing is split that fits."""
    assert split("Sales rose.", part_bytes=20, overlap_bytes=5) == ["Sales rose."]


def test_parts_end_at_paragraphs_and_overlap_by_whole_ones() -> None:
    """A part begins with whole paragraphs that end the part before it."""
    parts = split(PARAGRAPHS, part_bytes=400, overlap_bytes=80)

    assert len(parts) > 5
    assert all(part.startswith("Paragraph ") for part in parts)
    assert all(part.endswith(".\n\n") for part in parts[:-1])
    for before, after in pairwise(parts):
        assert after.partition("\n\n")[0] in before


@pytest.mark.parametrize(
    ("text", "border"),
    [
        ("one line\n" * 50, "\n"),
        ("One sentence. " * 50, ". "),
        ("一句话。" * 60, "。"),
        ("word " * 100, " "),
    ],
)
def test_without_paragraphs_the_next_best_border_is_taken(text: str, border: str) -> None:
    """Lines come before sentences, and sentences before words."""
    parts = split(text, part_bytes=100, overlap_bytes=20)

    assert len(parts) > 2
    assert all(part.endswith(border) for part in parts[:-1])


@pytest.mark.parametrize("seed", range(50))
def test_every_character_is_in_a_part_and_no_part_is_too_long(seed: int) -> None:
    """That holds for any text, also for one that has no borders or characters of four bytes."""
    draw = random.Random(seed)  # noqa: S311 - no secret
    letters = draw.choice(["ab \n.", "é日𝄞", "x", "\n", "日。 "])
    text = "<" + "".join(draw.choices(letters, k=draw.randrange(1, 600))) + ">"
    part_bytes = draw.randrange(16, 120)

    overlapping = split(text, part_bytes=part_bytes, overlap_bytes=draw.randrange(60))
    parts = split(text, part_bytes=part_bytes, overlap_bytes=0)

    assert all(len(part.encode()) <= part_bytes for part in (*parts, *overlapping))
    assert all(part in text for part in overlapping)
    assert overlapping[0].startswith("<")
    assert overlapping[-1].endswith(">")
    assert "".join("".join(parts).split()) == "".join(text.split())


def test_blank_parts_are_left_out() -> None:
    """A call for blanks would be wasted."""
    parts = split("a" * 50 + " " * 400 + "b" * 50, part_bytes=60, overlap_bytes=0)

    assert "".join(parts).split() == ["a" * 50, "b" * 50]
