"""Dead letters in groups, on a person's screen and in a script's JSON."""

from dataclasses import replace
from datetime import datetime

import orjson
import pytest

from docllm.producer.ledger.dead_letters.error_groups import ErrorGroup, Example
from docllm.producer.ledger.dead_letters.failure_groups import TotalCost
from docllm.producer.screen.dead_letters import (
    groups_json,
    groups_lines,
    groups_text,
)

# The database's times are UTC without a zone.
AT = datetime(2026, 3, 1, 12, 30, 15, 250000)  # noqa: DTZ001
ESCAPES = "a\x1b[31mred\r\nb\x00\u202e"
GROUP = ErrorGroup(
    fingerprint="ab" * 16,
    disposition="permanent",
    count=12,
    tasks=12,
    first_at=AT,
    last_at=AT,
    example=Example("k", "b", "TOO_LONG", "9000 tokens"),
    spent=TotalCost(14, 100, 20, 1_500_000),
)
RECORDS = ErrorGroup(
    fingerprint="",
    disposition="undecodable",
    count=3,
    tasks=0,
    first_at=AT,
    last_at=AT,
    example=Example("quarantine:7", "", "UNDECODABLE", "line is not JSON"),
)


def test_a_table_fits_a_terminal() -> None:
    """A table row and the example below it fit the width, whatever the example."""
    wide = replace(GROUP, example=replace(GROUP.example, error="x" * 400))

    lines = list(groups_lines([wide, RECORDS], 80))

    assert max(map(len, lines)) == 80
    assert lines[0].split() == "count disposition class fingerprint first last cost".split()
    assert (
        lines[1].split() == "12 permanent TOO_LONG abababab 03-01 12:30 03-01 12:30 1.5000".split()
    )
    assert lines[2].strip().startswith("14 attempts, 100+20 tokens; b/k: xxx")
    assert lines[2].endswith("...")
    assert lines[4].strip() == "quarantine:7: line is not JSON"


def test_dead_is_red_and_nothing_in_an_example_is_markup() -> None:
    """Colours mark figures only; an error's text stays as it is."""
    marked = replace(GROUP, example=replace(GROUP.example, error="[bold]x[/bold]"))

    _, line, example = groups_text([marked], 120)

    styles = {(line.plain[span.start : span.end].strip(), str(span.style)) for span in line.spans}
    assert {("12", "red"), ("TOO_LONG", "bold")} <= styles
    assert example.plain.endswith("b/k: [bold]x[/bold]")
    assert (example.spans, example.style) == ([], "")


@pytest.mark.parametrize("width", [60, 80, 100])
def test_no_figure_of_a_large_group_is_cut(width: int) -> None:
    """No figure is cut, since a cut figure is wrong.

    The class is shortened instead, and the less important dates are dropped.
    """
    spent = TotalCost(2_000_000, 1, 1, 12_345_678_900)
    wide = replace(
        GROUP,
        disposition="worker_lost",
        count=1_000_000,
        spent=spent,
        example=replace(GROUP.example, error_class="C" * 64),
    )

    first, line, _ = groups_lines([wide], width)

    assert max(len(first), len(line)) <= width
    assert line.split()[0] == "1000000"
    assert line.split()[-1] == "12,345.6789"
    assert "CCCCCCCCCCC" in line
    assert "abababab" in line
    assert ("first" in first.split()) == (width >= 80)


def test_a_column_of_which_no_group_has_anything_is_left_out() -> None:
    """A column that is empty in all groups is dropped.

    Quarantined records cost nothing and mostly have no fingerprint.
    """
    first, *_ = groups_lines([RECORDS], 80)

    assert first.split() == ["count", "disposition", "class", "first", "last"]


def test_the_json_of_groups_is_whole() -> None:
    """Plain numbers, times in UTC, cost in the unit of the price table."""
    document = orjson.loads(orjson.dumps(groups_json("docllm", [GROUP, RECORDS])))

    assert (document["version"], document["group"], document["count"]) == (1, "docllm", 15)
    assert document["groups"][0] == {
        "fingerprint": "ab" * 16,
        "disposition": "permanent",
        "count": 12,
        "tasks": 12,
        "first_at": "2026-03-01T12:30:15.250000Z",
        "last_at": "2026-03-01T12:30:15.250000Z",
        "error_class": "TOO_LONG",
        "attempts": 14,
        "tokens_in": 100,
        "tokens_out": 20,
        "cost": 1.5,
        "unpriced_calls": 0,
        "example": {"id": "k", "batch": "b", "error": "9000 tokens"},
    }


def test_nothing_in_a_group_acts_on_a_terminal() -> None:
    """Escapes, line ends and direction marks in names and errors do not reach the terminal."""
    group = replace(GROUP, example=Example(ESCAPES, ESCAPES, ESCAPES, ESCAPES))

    assert all(line.isprintable() for line in groups_lines([group], 200))


def test_several_errors_are_named_so() -> None:
    """No fingerprint is shown that would select nothing."""
    several = replace(GROUP, fingerprint="ff" * 16, example=Example("", "", "", "many errors"))

    _, line, example = groups_lines([several], 120)

    assert "other errors" in line
    assert "fff" not in line
    assert example.endswith("tokens; many errors")
