"""Output reaches the person, or they learn why not."""

import subprocess
import sys
from pathlib import Path

import pytest

from docllm.producer.screen.output import complain, note

SAY = "from docllm.producer.screen.output import say; say('a line')"


def said(out: Path) -> subprocess.CompletedProcess[str]:
    with out.open("w") as file:
        return subprocess.run(
            [sys.executable, "-c", SAY], check=False, stdout=file, stderr=subprocess.PIPE, text=True
        )


def test_a_line_is_written_at_once(tmp_path: Path) -> None:
    """A line is written at once, and does not stay in a buffer."""
    ended = said(tmp_path / "out")

    assert (ended.returncode, (tmp_path / "out").read_text()) == (0, "a line\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_a_full_device_is_a_usage_error() -> None:
    """A full device is a usage error, and no bug of ours.

    The message says what cannot be written, and the interpreter does not complain again at its end.
    """
    ended = said(Path("/dev/full"))

    assert "standard output cannot be written: No space left on device" in ended.stderr
    assert "Exception ignored" not in ended.stderr
    assert ended.returncode == 1


def test_a_reader_that_left_is_no_error() -> None:
    """`| head` ends a program silently."""
    with subprocess.Popen(
        [sys.executable, "-c", SAY], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()
        errors = program.stderr.read()

    assert (program.returncode, errors) == (0, b"")


def test_notes_hold_no_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A note holds no control characters: errors name fields and batches as others wrote them."""
    note("one\x1b[31m\ntwo")
    complain("three\x1b[31m")

    assert capsys.readouterr().err == "one [31m\ntwo\nerror: three [31m\n"
