"""Tables that fit a width without cutting a figure."""

from collections.abc import Sequence

import pytest
from rich.text import Text

from docllm.producer.text import columns
from docllm.producer.text.columns import Column

NAME = Column("name", ("a-long-name", "b"), left=True, least=6)
COUNT = Column("count", ("1000000", "2"))
RATE = Column("rate", ("12.5", "0"))


def fitted(
    table: Sequence[Column], width: int, leaving: Sequence[str]
) -> tuple[list[str], list[str]]:
    lines, gone = columns.fitted(table, width, leaving)
    return [line.plain for line in lines], gone


def test_a_table_with_room_is_whole() -> None:
    """Text is aligned left, figures right, with two blanks between."""
    lines, gone = fitted([NAME, COUNT, RATE], 80, ("rate",))

    assert lines == [
        "name           count  rate",
        "a-long-name  1000000  12.5",
        "b                  2     0",
    ]
    assert gone == []


@pytest.mark.parametrize(
    ("width", "line", "gone"),
    [
        (23, "a-long-\u2026  1000000  12.5", []),
        (19, "a-lon\u2026 1000000 12.5", []),
        (18, "a-long-n\u2026  1000000", ["rate"]),
    ],
)
def test_columns_give_way_to_a_width(width: int, line: str, gone: list[str]) -> None:
    """Columns are shortened where they may, with a mark; then they move closer, to one blank.

    Then the least important column is dropped, and the others use its width.
    """
    lines, dropped = fitted([NAME, COUNT, RATE], width, ("rate",))

    assert (lines[1], dropped) == (line, gone)


def test_where_nothing_more_may_leave_lines_are_wider() -> None:
    """If no more column may be dropped, lines get wider; a terminal wraps them uncut."""
    lines, _ = fitted([NAME, COUNT, RATE], 5, ("rate",))

    assert lines[1] == "a-lon\u2026 1000000"


def test_an_empty_optional_column_is_dropped() -> None:
    """An optional column without any information is dropped silently."""
    lines, gone = fitted(
        [NAME, Column("dead", ("0", "0")), Column("total", ("0", "0"))], 80, ("dead",)
    )

    assert lines[0].split() == ["name", "total"]
    assert gone == []


def test_letters_of_two_columns_are_counted_so() -> None:
    """A Chinese name takes as many columns as a terminal shows."""
    lines, _ = fitted([Column("name", ("\u6587\u6863",), left=True), Column("n", ("1",))], 80, ())

    assert lines == ["name  n", "\u6587\u6863  1"]


def test_a_figure_has_its_columns_colour() -> None:
    """A zero is dim, so that no red zero alarms anybody; blanks have no colour of their own."""
    dead = Column("dead", ("0", "12"), style="red")
    (head, none, some), _ = columns.fitted([COUNT, dead], 80, ())

    def styled(line: Text) -> list[tuple[str, str]]:
        return [(line.plain[span.start : span.end].strip(), str(span.style)) for span in line.spans]

    assert ("dead", "bold") in styled(head)
    assert ("0", "dim") in styled(none)
    assert ("12", "red") in styled(some)
