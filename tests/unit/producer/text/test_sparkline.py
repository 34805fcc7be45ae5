"""A sparkline shows the shape of ten numbers wherever it is shown."""

import pytest

from docllm.producer.screen.group_status import sparkline


def test_the_largest_number_has_the_highest_bar() -> None:
    """A zero is a dot, the smallest count has a bar, and equal counts have equal bars."""
    assert sparkline([0, 1, 1000, 500, 1000], "utf-8") == ".▁█▄█"
    assert sparkline(range(9), "utf-8") == ".▁▂▃▄▅▆▇█"
    assert sparkline([7], "utf-8") == "█"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", None, "no-such-encoding"])
def test_an_output_without_blocks_gets_ascii(encoding: str | None) -> None:
    """Half of the world's terminals over SSH have an old locale; the screen must not end there."""
    assert sparkline(range(9), encoding) == ".:-=+*#%@"


def test_nothing_and_zeros_are_no_error() -> None:
    """A batch may have no numbers, or only zeros."""
    assert sparkline([], "utf-8") == ""
    assert sparkline([0, 0], "utf-8") == ".."


def test_large_numbers_stay_in_range() -> None:
    """No count falls off the scale."""
    counts = [10**15, 10**15 - 1, 1]

    assert sparkline(counts, "utf-8") == "██▁"
