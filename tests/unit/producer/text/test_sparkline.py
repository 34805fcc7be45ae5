"""A sparkline shows the shape of ten numbers wherever it is shown."""

from collections.abc import Sequence

import pytest

from docllm.producer.screen.group_status import sparkline


@pytest.mark.parametrize(
    ("numbers", "encoding", "bars"),
    [
        ([0, 1, 1000, 500, 1000], "utf-8", ".▁█▄█"),
        (range(9), "utf-8", ".▁▂▃▄▅▆▇█"),
        ([7], "utf-8", "█"),
        ([], "utf-8", ""),
        ([0, 0], "utf-8", ".."),
        ([10**15, 10**15 - 1, 1], "utf-8", "██▁"),
        *((range(9), name, ".:-=+*#%@") for name in ("ascii", "latin-1", None, "no-such-encoding")),
    ],
)
def test_the_largest_number_has_the_highest_bar(
    numbers: Sequence[int], encoding: str | None, bars: str
) -> None:
    """A zero is a dot, the smallest count has a bar, and equal counts have equal bars.

    Half of the world's terminals over SSH have an old locale; the screen must not end there.
    """
    assert sparkline(numbers, encoding) == bars
