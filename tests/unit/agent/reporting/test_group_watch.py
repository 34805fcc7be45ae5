"""The parent of several agents shows one progress, and one summary at the end."""

import pytest

from docllm.agent.reporting.group_watch import GroupWatch, watch
from docllm.agent.reporting.views import DeadExample, Note, View, to_line
from docllm.producer.ledger.status.progress import Totals
from docllm.schemas.codes import Code
from tests.support.clock import HandClock


def test_what_one_agent_tells_is_shown_for_all(caplog: pytest.LogCaptureFixture) -> None:
    """The run begins with the first totals; the end has examples and notes once."""
    caplog.set_level("INFO")
    clock = HandClock()
    lines: list[str] = []
    view = View(lambda run, _totals, _now_s: lines.append(run.line()))
    parent = GroupWatch(view=view, clock=clock, group="g", priced=())
    parent.tick()
    parent.log_summary()
    assert (lines, caplog.messages) == ([], [])

    for totals in (
        Totals(open=2, succeeded=5),
        Totals(open=1, succeeded=6),
        Totals(succeeded=6, dead=1, dead_by_class={"SERVER": 1}),
    ):
        parent.take_message(to_line(totals))
        clock.at_s += 10.0
        parent.tick()
        parent.tick()
    for text in ("task a of batch b: 500", "task c of batch b: 500"):
        parent.take_message(to_line(DeadExample("SERVER", text)))
        parent.take_message(to_line(Note("half loaded", Code.LOAD_UNFINISHED)))
    parent.take_message(b"noise")
    parent.log_summary()

    assert [line.partition(",")[0] for line in lines] == [
        "0 of 2 tasks done",
        "1 of 2 tasks done",
        "2 of 2 tasks done",
    ]
    assert caplog.messages == [
        (
            "1 task dead with SERVER, for example task a of batch b: 500; "
            "more: docllm dead list --group g"
        ),
        "half loaded",
        "done: 2 tasks in 0:00:30: 1 succeeded, 1 dead",
    ]


def test_a_line_of_an_agent_is_shown_safely(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a bar the agents write to stderr themselves; with one, the parent writes for them."""
    with watch(clock=HandClock(), group="g", priced=()) as parent:
        assert not parent.takes_errors
        parent.show_line(b"line \x1b[31m \xff")

    assert capsys.readouterr().err == "line  [31m \ufffd\n"
