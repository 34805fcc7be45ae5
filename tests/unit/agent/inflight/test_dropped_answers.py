"""Paid answers that are dropped are counted in the log: their calls are paid again."""

import pytest

from docllm.agent.inflight.dropped_answers import DroppedAnswers
from docllm.schemas.codes import Code
from tests.support.clock import HandClock


def test_dropped_answers_are_logged_once_a_minute_and_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each line counts the answers since the line before it, so the lines add up to all."""
    clock = HandClock()
    dropped = DroppedAnswers(clock)

    for now_s in (100.0, 101.0, 159.0, 160.0, 161.0):
        clock.at_s = now_s
        dropped.add(1)
    dropped.log_rest()
    dropped.log_rest()

    texts = [text.partition(",")[0] for text in caplog.messages]
    assert texts == ["dropped 1 paid answer", "dropped 3 paid answers", "dropped 1 paid answer"]
    assert {record.code for record in caplog.records} == {Code.ANSWERS_DROPPED}  # type: ignore[attr-defined]
