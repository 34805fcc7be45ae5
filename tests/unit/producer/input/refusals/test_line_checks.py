"""Lines pass through several checks, and the first reason to refuse one counts."""

from docllm.producer.input.lines import InvalidLine, ValidLine, read_line
from docllm.producer.input.refusals.line_checks import checked

TASK = read_line(1, b'{"id": "a", "prompt": "x"}')
BAD = read_line(2, b"{")


def passes(line: ValidLine) -> ValidLine | InvalidLine:
    return line


def refused(field: str) -> InvalidLine:
    return InvalidLine(line=1, field=field, error="is wrong", fix="mend it", text="{}")


def test_a_line_that_all_checks_let_through_stays() -> None:
    assert list(checked([TASK], [passes, passes])) == [TASK]


def test_the_first_reason_counts() -> None:
    """A person mends one field after another, in the order of the checks."""
    checks = [passes, lambda _: refused("type"), lambda _: refused("route")]

    assert list(checked([TASK], checks)) == [refused("type")]


def test_a_bad_line_is_not_checked() -> None:
    """A bad line has its error already."""
    assert list(checked([BAD, TASK], [lambda _: refused("type")])) == [BAD, refused("type")]
