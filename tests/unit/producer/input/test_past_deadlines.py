"""A deadline that has passed is counted, with one example."""

import orjson

from docllm.producer.input.lines import ValidLine, read_line
from docllm.producer.input.load_warnings import PastDeadlines

NOW_S = 1_770_000_000.0  # 2026-02-02T02:40:00Z


def warned(*deadlines: str | None) -> str:
    past = PastDeadlines(NOW_S)
    for number, deadline in enumerate(deadlines, 1):
        fields = {"id": f"t{number}", "prompt": "x"}
        line = read_line(
            number, orjson.dumps(fields | ({"deadline": deadline} if deadline else {}))
        )
        assert isinstance(line, ValidLine)
        past.add(line)
    return str(past)


def test_deadlines_to_come_are_silent() -> None:
    """No deadline, and one that is still to come."""
    assert warned(None, "2026-02-02T02:40:01Z", "2026-02-02T02:40:00Z") == ""


def test_past_deadlines_are_counted_with_the_first_as_example() -> None:
    """The time is shown in UTC, whatever zone it was written in."""
    assert warned(None, "2020-01-31T08:00:00+02:00", "2021-01-01T00:00:00Z") == (
        "2 tasks have a deadline that has passed, such as 't2' (line 2: 2020-01-31T06:00:00Z); "
        "they will be dead without a call"
    )
    assert warned("2020-01-01T00:00:00Z").startswith("1 task has a deadline")
