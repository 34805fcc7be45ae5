"""Progress goes to a bar, to the log, or to a parent, where it arrives as it was."""

import os
import pty
import subprocess
import sys

import pytest

from docllm.agent.reporting.group_run import GroupRun
from docllm.agent.reporting.views import (
    LINE_S,
    DeadExample,
    LineView,
    Note,
    ProgressMessage,
    dead_example,
    from_line,
    to_line,
    view_of,
)
from docllm.producer.ledger.status.progress import Totals
from docllm.schemas.codes import Code


def test_a_line_is_logged_while_there_is_work(caplog: pytest.LogCaptureFixture) -> None:
    """An idle agent logs no line; one that has work logs one every half minute."""
    caplog.set_level("INFO")
    view, run = LineView(), GroupRun(priced=())
    working, idle = Totals(open=1), Totals(succeeded=1)

    for now_s, totals in enumerate([working, working, working, idle, idle, idle]):
        run.see(totals, now_s * LINE_S)
        view.show(run, totals, now_s * LINE_S)
        view.show(run, totals, now_s * LINE_S + 1)

    assert [message.split(",")[0] for message in caplog.messages] == [
        "0 of 1 task done",
        "0 of 1 task done",
        "1 of 1 task done",
    ]


def test_a_parent_gets_the_totals() -> None:
    """The parent counts from the first totals that it gets."""
    told: list[bytes] = []

    with view_of(told.append) as view:
        view.show(GroupRun(priced=()), Totals(open=4), 0.0)

    assert list(map(from_line, told)) == [Totals(open=4)]


def test_bar_is_for_the_foreground_of_a_terminal() -> None:
    """Only a program in the foreground of a terminal may draw a bar.

    A program with a session of its own, like the agents of one parent, may not.
    """
    code = "import os; from docllm.agent.reporting.views import in_front; os._exit(10 + in_front())"
    command = [sys.executable, "-c", code]

    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, command)  # noqa: S606 - the program under test
    front = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    master, slave = os.openpty()
    apart = subprocess.run(command, stderr=slave, start_new_session=True, check=False).returncode
    for descriptor in (terminal, master, slave):
        os.close(descriptor)

    assert (front, apart) == (11, 10)


@pytest.mark.parametrize(
    "message",
    [
        Totals(open=3, dead_by_class={"SERVER": 1}),
        DeadExample("SERVER", "task a of batch b: 500"),
        Note("batch b: its load has not ended", Code.LOAD_UNFINISHED),
    ],
)
def test_a_message_arrives_as_it_was(message: ProgressMessage) -> None:
    """A message is one line."""
    line = to_line(message)

    assert b"\n" not in line
    assert from_line(line) == message


@pytest.mark.parametrize("line", [b"", b"x", b"[]", b"{}", b'{"totals": 1}', b'{"other": {}}'])
def test_other_lines_are_ignored(line: bytes) -> None:
    """A handler may write into its agent's pipe."""
    assert from_line(line) is None


def test_an_example_is_one_safe_line() -> None:
    """A provider's text may hold line ends and controls."""
    assert dead_example("SERVER", "a", "b", "500\n\x1b[31m").text == "task a of batch b: 500 [31m"
