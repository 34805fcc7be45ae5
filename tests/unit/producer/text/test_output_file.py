"""Output files are complete or absent, and a reader may leave."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from docllm.producer.text.output_file import whole_file

ROOT = Path(__file__).parents[4]


def fail_in(path: Path) -> None:
    with whole_file(path) as file:
        file.write(b"half")
        raise OSError("disk")


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    """The file appears under its name only when the block ends, with nothing left beside it."""
    path = tmp_path / "r.jsonl"

    with whole_file(path) as file:
        file.write(b"whole")
        assert not path.exists()

    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_earlier_file(tmp_path: Path) -> None:
    """An error in the middle keeps the older file and removes the draft."""
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"older")

    with pytest.raises(OSError, match="disk"):
        fail_in(path)

    assert path.read_bytes() == b"older"
    assert list(tmp_path.iterdir()) == [path]


def ended_process() -> int:
    """Return a process number that is not in use."""
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    return child.pid


def test_a_draft_whose_writer_was_killed_is_removed_by_the_next(tmp_path: Path) -> None:
    """The next writer removes the draft of a killed writer, which used to stay for ever.

    The draft of a living writer, here or in another container, is left alone.
    """
    path, dead = tmp_path / "r.jsonl", ended_process()
    left = tmp_path / f".r.jsonl.{dead}.0123abcd.part"
    names = (
        f".r.jsonl.{os.getppid()}.0123abcd",
        f".r.jsonl.{dead}",
        f".other.{dead}.0123abcd",
        f"r.jsonl.{dead}.0123abcd",
    )
    others = [tmp_path / f"{name}.part" for name in names]
    for draft in (left, *others):
        draft.write_bytes(b"half")

    with left.open("rb") as elsewhere:
        fcntl.flock(elsewhere, fcntl.LOCK_EX)
        with whole_file(path) as file:
            file.write(b"whole")
        assert left.exists()
    with whole_file(path) as file:
        file.write(b"whole")

    assert set(tmp_path.iterdir()) == {path, *others}


def test_writers_of_one_number_write_each_their_own(tmp_path: Path) -> None:
    """Writers with the same process number write separate drafts.

    Two containers that share a folder may have such programs. The file is complete, by either of
    them.
    """
    path = tmp_path / "r.jsonl"

    with whole_file(path) as first_file:
        first_file.write(b"one, which is longer")
        with whole_file(path) as second_file:
            second_file.write(b"two")
        assert path.read_bytes() == b"two"

    assert path.read_bytes() == b"one, which is longer"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["文" * 82 + ".jsonl", "a" * 255, "é" * 127 + "x"])
def test_a_draft_of_a_long_name_has_a_shorter_one(tmp_path: Path, name: str) -> None:
    """A draft of a long name has a shorter one: a name has at most 255 bytes."""
    with whole_file(tmp_path / name) as file:
        file.write(b"whole")

    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_link_is_kept_and_a_device_is_written_to(tmp_path: Path) -> None:
    """A link's target is replaced, and not the link; /dev/null stays a device."""
    (tmp_path / "link").symlink_to(tmp_path / "target")

    for path in (tmp_path / "link", Path("/dev/null")):
        with whole_file(path) as file:
            file.write(b"x")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"x"
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["loop", "loop/x"])
def test_a_loop_of_links_is_no_target(tmp_path: Path, name: str) -> None:
    """A loop of links is an OSError like any other path that cannot be written."""
    (tmp_path / "loop").symlink_to("loop")

    with pytest.raises(OSError, match="Too many levels"), whole_file(tmp_path / name):
        pytest.fail("there is nothing to write to")

    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


def leave_after_a_line(program: str) -> None:
    """Read one line of a program's output, then close; it must end quietly with exit code 0."""
    writer = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stderr is not None

    assert writer.stdout.readline() == b"line\n"
    writer.stdout.close()

    assert (writer.wait(30), writer.stderr.read()) == (0, b"")
    writer.stderr.close()


def test_a_reader_that_leaves_is_no_error() -> None:
    """`export | head -1` ends quietly with exit code 0, as other tools do."""
    program = """
from docllm.producer.text.output_file import standard_output
with standard_output() as out:
    for _ in range(100000):
        out.write(b"line\\n")
"""
    leave_after_a_line(program)


def test_a_pipe_that_is_named_as_a_device_is_written_to() -> None:
    """`export /dev/stdout | head -1` works, though the pipe behind the name has no path."""
    program = (
        "from pathlib import Path\nfrom docllm.producer.text.output_file import whole_file\n"
        "with whole_file(Path('/dev/stdout')) as out:\n"
        "    for _ in range(100000): out.write(b'line\\n')"
    )
    leave_after_a_line(program)
