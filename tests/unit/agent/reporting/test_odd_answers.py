"""Odd answers are counted by kind, and the first of each kind is logged."""

import pytest

from docllm.agent.reporting.metrics import AgentMetrics
from docllm.agent.reporting.odd_answers import OddAnswers


def test_the_first_of_each_kind_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A server whose answers are all odd fills no log."""
    odd = OddAnswers()

    for _ in range(3):
        odd.note("fast", ["finish_reason other", "mended surrogate"])

    assert odd.counts() == {"finish_reason other": 3, "mended surrogate": 3}
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        "an answer of route fast was taken although it is odd (finish_reason other)",
        "an answer of route fast was taken although it is odd (mended surrogate)",
    ]


def test_a_stranger_cannot_make_kinds_without_end(caplog: pytest.LogCaptureFixture) -> None:
    """Kinds beyond the bound are counted together, and not logged."""
    odd = OddAnswers(most_kinds=2)

    for number in range(100):
        odd.note("fast", [f"finish_reason w{number}"])

    assert odd.counts() == {"finish_reason w0": 1, "finish_reason w1": 1, "other": 98}
    assert len(caplog.records) == 2


def test_the_counts_are_a_metric() -> None:
    """Each kind is a label of one metric."""
    odd = OddAnswers()
    odd.note("fast", ['finish_reason "new"\\'])
    metrics = AgentMetrics(group="g", routes=(), counters=(), gauges=(), odd_answers=odd.counts)

    line = r'docllm_odd_answers_total{group="g",kind="finish_reason \"new\"\\"} 1.0'
    assert line in metrics.text().decode()
