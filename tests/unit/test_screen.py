"""What a person sees reaches them, or they are told why not."""

import subprocess
import sys
from pathlib import Path

import pytest

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
