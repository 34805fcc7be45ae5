"""The picture of the front page: one size for every run, light, and nothing of other hosts."""

import re

from rich.text import Text

from tools import picture


def test_a_picture_has_one_size() -> None:
    """Few or many lines, short or long: the page around the picture stays as it is."""
    small, large = picture.drawn([Text("one")]), picture.drawn([Text("x" * 300)] * 90)
    assert re.findall(r'viewBox="[^"]*"', small) == re.findall(r'viewBox="[^"]*"', large)


def test_the_picture_is_light_and_loads_nothing() -> None:
    """A browser that shows the picture asks no other host for a font."""
    drawn = picture.PICTURE.read_text("utf-8")
    assert len(drawn) < 40_000
    assert set(re.findall(r"https?://[^\"') ]*", drawn)) == {"http://www.w3.org/2000/svg"}
    assert "docllm" in drawn
    assert "succeeded" in drawn
