"""What a person sees reaches them, or they are told why not."""

import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from producer.screen import bar, complain, note, status_lines, status_table
from producer.status import AgentStatus, BatchStatus, GroupStatus

SAY = "from producer.screen import say; say('a line')"


def said(out: Path) -> subprocess.CompletedProcess[str]:
    with out.open("w") as file:
        return subprocess.run([sys.executable, "-c", SAY], check=False, stdout=file, stderr=subprocess.PIPE, text=True)


def test_a_line_is_written_at_once(tmp_path: Path) -> None:
    """Nothing stays in a buffer."""
    ended = said(tmp_path / "out")

    assert (ended.returncode, (tmp_path / "out").read_text()) == (0, "a line\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_a_full_device_is_told_and_not_taken_for_a_bug_of_ours() -> None:
    """The message says what cannot be written, and the interpreter does not complain a second time at its end."""
    ended = said(Path("/dev/full"))

    assert "standard output cannot be written: No space left on device" in ended.stderr
    assert "Exception ignored" not in ended.stderr
    assert ended.returncode == 1


def test_a_reader_that_left_is_no_error() -> None:
    """`| head` ends a program without a word."""
    with subprocess.Popen([sys.executable, "-c", SAY], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()
        told = program.stderr.read()

    assert (program.returncode, told) == (0, b"")


def group_with(batch: str) -> GroupStatus:
    counts = dict.fromkeys(("total", "pending", "processing", "retrying", "succeeded", "dead", "cancelled"), 0)
    one = BatchStatus(batch, counts, 0.0, None, 0, 0, 0.0, {"BAD_REQUEST": 3})
    agent = AgentStatus(1, batch, "alive", 1.0, batch)
    return GroupStatus("g", "l", (agent,), (one,), 0, (f"{batch} waits",))


def table(status: GroupStatus) -> str:
    out = StringIO()
    Console(file=out, width=160).print(status_table(status))
    return out.getvalue()


@pytest.mark.parametrize("name", ["[/INST]", "report [draft]", "[red]x", ":smile:", "[link=http://h]x[/link]"])
def test_a_name_is_no_markup(name: str) -> None:
    """A record of the inbox names its batch; one name would end `status` for the whole group, another one be shown as what it is not."""
    assert name in table(group_with(name))


def test_no_control_character_of_a_name_reaches_a_terminal() -> None:
    """It could move the cursor or forge a line."""
    status = group_with("a\x1b[2J\nb\x9b1m")

    lines = status_lines(status)

    assert "\x1b" not in table(status) + "".join(lines)
    assert all(line.isprintable() for line in lines)


def test_a_title_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar's title holds the batch's name."""
    terminal = StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)

    with bar("loading x[/INST]\x07") as shown:
        shown.show(1, 1)

    assert "loading x[/INST]" in terminal.getvalue()
    assert "\x07" not in terminal.getvalue()


def test_what_is_noted_holds_nothing_that_a_terminal_acts_on(capsys: pytest.CaptureFixture[str]) -> None:
    """Errors name fields and batches as strangers wrote them."""
    note("one\x1b[31m\ntwo")
    complain("three\x1b[31m")

    assert capsys.readouterr().err == "one [31m\ntwo\nerror: three [31m\n"
