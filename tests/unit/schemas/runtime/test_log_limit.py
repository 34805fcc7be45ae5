"""A line that could come with every task is logged once a minute."""

from docllm.schemas.runtime.outage import LOG_EVERY_S, LogLimit
from tests.support.clock import HandClock


def test_a_line_comes_at_once_and_then_once_a_minute() -> None:
    """Four questions a second for some minutes: one line for each minute that has begun."""
    clock, minutes = HandClock(), 3
    limit = LogLimit(clock)

    permitted = 0
    for _ in range(int(minutes * LOG_EVERY_S * 4)):
        permitted += limit.permits()
        clock.at_s += 0.25

    assert permitted == minutes
