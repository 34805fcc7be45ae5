"""A bar shows what it is told, and lines of the log appear above it."""

import logging
import sys
from io import StringIO

import pytest

from docllm.producer.screen.live import bar
from docllm.producer.text.printable import log_to_stderr


class Terminal(StringIO):
    """A terminal that keeps what was written to it."""

    def isatty(self) -> bool:
        return True


def made(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return the terminal that is stderr. A fixture is too early: the runner sets stderr later."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def test_a_title_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar's title is no markup: it holds the batch's name."""
    terminal = made(monkeypatch)
    with bar("loading x[/INST]\x07") as shown:
        shown.show(1, 1)

    assert "loading x[/INST]" in terminal.getvalue()
    assert "\x07" not in terminal.getvalue()


def test_a_bar_shows_its_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without facts, it shows how much is done."""
    terminal = made(monkeypatch)
    with bar("tasks", ticks=False) as shown:
        shown.show(1200, 3000)
        shown.show(1300, 3000, "1,300 of 3,000  2 dead [red]")

    assert "1,200 of 3,000" in terminal.getvalue()
    assert "1,300 of 3,000  2 dead [red]" in terminal.getvalue()


def test_a_log_line_does_not_tear_a_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log line begins on a line of its own, stays whole, and the bar follows it."""
    terminal = made(monkeypatch)
    monkeypatch.setattr(logging.root, "handlers", [])
    log_to_stderr(logging.Formatter("%(message)s"), "INFO")
    message = "[bold]a long line " * 8

    with bar("tasks", ticks=False) as shown:
        shown.show(1, 2, "half")
        logging.getLogger("x").warning(message)
        shown.show(2, 2, "all")

    (line,) = (line for line in terminal.getvalue().split("\n") if "a long line" in line)
    assert line.rpartition("\x1b[2K")[2] == message
    assert "half" not in line.rpartition("\x1b[2K")[2]


def test_results_go_where_they_are_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Results in a pipe are no part of the screen."""
    terminal = made(monkeypatch)
    results = StringIO()
    monkeypatch.setattr(sys, "stdout", results)

    with bar("tasks", ticks=False):
        sys.stdout.write("result\n")

    assert results.getvalue() == "result\n"
    assert "result" not in terminal.getvalue()


def test_a_terminal_that_cannot_move_its_cursor_gets_no_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The terminal's reader gets log lines instead."""
    terminal = made(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")

    with bar("tasks") as shown:
        shown.show(1, 1)

    assert (shown.shown, terminal.getvalue()) == (False, "")


def test_nothing_is_drawn_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file gets no bar."""
    file = StringIO()
    monkeypatch.setattr(sys, "stderr", file)

    with bar("tasks") as shown:
        shown.show(1, 1)

    assert (shown.shown, file.getvalue()) == (False, "")
