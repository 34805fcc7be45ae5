"""The first error of a kind is logged whole, and later ones are counted; odd answers, too."""

import pytest

from docllm.agent.ports.outcome import Failure
from docllm.agent.reporting.handler_errors import LINE_EVERY_S, HandlerErrors
from docllm.agent.reporting.metrics import AgentMetrics
from docllm.agent.reporting.odd_answers import OddAnswers
from docllm.producer.text.printable import ShownFormatter
from docllm.schemas.task.failures import ErrorClass

FRAMES = '  File "a.py", line 3, in extract\n    total["net"]'


class Log:
    """Notes errors at times of its own, and returns the lines that were logged since."""

    def __init__(self, caplog: pytest.LogCaptureFixture, most_kinds: int = 9) -> None:
        self._caplog = caplog
        self.errors = HandlerErrors(most_kinds)

    def note(
        self, task: str, text: str, now_s: float, place: str = "a.py:3", task_type: str = "invoice"
    ) -> list[str]:
        self._caplog.clear()
        self.errors.note(
            task=task,
            task_type=task_type,
            failure=Failure(ErrorClass.HANDLER, text, FRAMES),
            place=place,
            now_s=now_s,
        )
        return [ShownFormatter("%(message)s").format(record) for record in self._caplog.records]


def counted(count: int) -> str:
    return (
        f"handler of type invoice failed {count} times at a.py:3; the traceback was logged with "
        "task 7 (b/k7)"
    )


def test_the_traceback_of_a_kind_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Errors that differ in ids and numbers are one kind; its count follows once a minute."""
    log = Log(caplog)

    first = log.note("task 7 (b/k7)", "KeyError: 'k7'", 0.0)
    silent = [log.note(f"task {i} (b/k{i})", f"KeyError: 'k{i}'", LINE_EVERY_S - 1) for i in (8, 9)]
    again = log.note("task 10 (b/k10)", "KeyError: 'k10'", LINE_EVERY_S)

    assert "\n".join(first) == (
        "task 7 (b/k7): handler of type invoice failed at a.py:3: KeyError: 'k7' [handler_fails]\n"
        '      File "a.py", line 3, in extract\n'
        '        total["net"]'
    )
    assert silent == [[], []]
    assert again == [f"{counted(4)}; the newest error: KeyError: 'k10' [handler_fails]"]
    assert log.note("task 11 (b/k11)", "KeyError: 'k11'", 2 * LINE_EVERY_S - 1) == []
    assert log.errors.lines() == [counted(5)]


def test_another_place_type_or_text_is_another_kind(caplog: pytest.LogCaptureFixture) -> None:
    """Each has a traceback of its own; what occurred once is not repeated at the end."""
    log = Log(caplog)

    logged = [
        *log.note("task 1 (b/1)", "KeyError: 'a'", 0.0),
        *log.note("task 2 (b/2)", "KeyError: 'a'", 0.0, place="a.py:4"),
        *log.note("task 3 (b/3)", "KeyError: 'a'", 0.0, task_type="letter"),
        *log.note("task 4 (b/4)", "ValueError: no total", 0.0),
    ]

    assert ["in extract" in line for line in logged] == [True] * 4
    assert log.errors.lines() == []


def test_very_many_kinds_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A handler may put words of its document into each message."""
    log = Log(caplog, most_kinds=2)
    words = "one two three four".split()

    logged = [log.note("task 1 (b/1)", f"ValueError: {word}", 0.0) for word in words]

    assert [len(lines) for lines in logged] == [1, 1, 1, 0]
    (line,) = logged[2]
    assert line.startswith("handlers failed in 2 different ways; errors of further kinds are only")
    assert log.errors.lines() == ["handlers failed 2 more times with errors that are not logged"]


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
    metrics = AgentMetrics(
        group="g",
        routes=(),
        counters=(),
        gauges=(),
        by_label=[("docllm_odd_answers", "Odd.", "kind", odd.counts)],
    )

    line = r'docllm_odd_answers_total{group="g",kind="finish_reason \"new\"\\"} 1.0'
    assert line in metrics.text().decode()
