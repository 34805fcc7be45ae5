"""A child process ends with its parent, which reads its lines whole and never waits for them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from docllm.agent.process import child_process
from docllm.agent.process.child_process import LINE_BYTES, LinePipe

ROOT = Path(__file__).parents[4]
PATIENCE_S = 60.0


def test_end_of_input_ends_a_child() -> None:
    """Where the kernel cannot tie a child to its parent, the end of its input ends it."""
    code = """
import time
from docllm.agent.process import child_process
child_process.BY_KERNEL = False
child_process.follow()
print(1, flush=True)
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        child.stdin.close()

        assert child.wait(PATIENCE_S) == -signal.SIGKILL


def test_files_of_the_current_folder_replace_no_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file `agent.py` in the current folder replaces no child.

    It used to run in place of each agent, and its exit code 0 counted as the end of the work.
    """
    monkeypatch.chdir(tmp_path)
    for name in ("agent", "producer", "schemas"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)")

    with child_process.start(child_process.program("--version"), stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        output = child.stdout.read()

    assert (child.returncode, output[:6]) == (0, b"docllm")


@pytest.mark.parametrize(
    ("path", "added"),
    [
        ([str(ROOT), "/lib"], True),
        (["", "/lib"], True),
        ([str(ROOT), "/lib", str(ROOT)], False),
        (["/usr/bin", str(ROOT)], False),
        (["/usr/bin", "/lib"], False),
    ],
    ids=["checkout", "current", "on the path too", "installed", "by a finder"],
)
def test_a_child_gets_a_path_only_where_it_would_not_find_docllm(
    monkeypatch: pytest.MonkeyPatch, path: list[str], *, added: bool
) -> None:
    """A child leaves out the first folder of the path; elsewhere it finds docllm as this process.

    A folder that was added would go before those of a user's PYTHONPATH.
    """
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", path)
    monkeypatch.setenv("PYTHONPATH", "/mine")

    variables = child_process.environment()

    assert (variables or {}).get("PYTHONPATH") == (f"{ROOT}:/mine" if added else None)


def test_lines_arrive_whole() -> None:
    """Half a line is kept until the rest of it comes."""
    reads, writes = os.pipe()
    pipe = LinePipe(reads)
    assert pipe.lines() == []

    os.write(writes, b"one\ntw")
    assert pipe.lines() == [b"one"]
    os.write(writes, b"o\n")
    assert pipe.lines() == [b"two"]

    os.write(writes, b"three\nrest")
    os.close(writes)
    assert pipe.close() == [b"three", b"rest"]
    assert not pipe.open


def test_a_closed_end_is_noticed() -> None:
    """A child that closed its end is asked no more."""
    reads, writes = os.pipe()
    pipe = LinePipe(reads)
    os.close(writes)

    assert (pipe.lines(), pipe.open, pipe.close()) == ([], False, [])


def test_a_writer_that_lives_on_is_not_waited_for() -> None:
    """A process that the child started may hold the other end open."""
    reads, writes = os.pipe()
    pipe = LinePipe(reads)
    os.write(writes, b"last")

    assert pipe.close() == [b"last"]
    os.close(writes)


def test_a_line_without_an_end_fills_no_memory() -> None:
    """A handler that prints without line ends is passed on in parts."""
    reads, writes = os.pipe()
    pipe, got = LinePipe(reads), 0
    for _ in range(2 * LINE_BYTES // 4096):
        os.write(writes, b"x" * 4096)
        got += sum(map(len, pipe.lines()))
    os.close(writes)

    assert got >= LINE_BYTES
    assert got + sum(map(len, pipe.close())) == 2 * LINE_BYTES
