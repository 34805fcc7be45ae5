"""What commands say of a batch that is archived or purged: since when, and how to read it."""

import shlex
import subprocess
from pathlib import Path

import pytest

from docllm.schemas.errors import UnsafeStateError
from tests.support.commands import run

ASKS = (
    ("replay", "--cancelled", "--batch", "b", "--dry-run"),
    ("replay", "--cancelled", "--batch", "b", "--yes"),
    ("replay", "--batch", "b", "--yes"),
    ("replay", "--id", "t1", "--batch", "b", "--yes"),
    ("dead", "list", "--batch", "b"),
)


def test_an_export_names_the_archive(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The archive may have what an erasure has deleted meanwhile."""
    archived(folder)
    capsys.readouterr()

    assert run(folder, "export", "--batch", "b") == 0

    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 3
    assert "batch 'b' was archived at 20" in said.err


def archived(folder: Path) -> Path:
    to = folder / "the archives"
    to.mkdir()
    assert run(folder, "archive", "--batch", "b", "--to", str(to)) == 0
    return to


@pytest.mark.parametrize("ask", ASKS, ids=" ".join)
def test_nothing_found_has_its_reason(
    folder: Path, capsys: pytest.CaptureFixture[str], ask: tuple[str, ...]
) -> None:
    """An archived batch, and then a purged one, is named with its time and its archive."""
    archived(folder)
    capsys.readouterr()
    run(folder, *ask)
    assert "batch 'b' was archived at 20" in capsys.readouterr().err

    assert run(folder, "purge", "--batch", "b", "--yes") == 0
    capsys.readouterr()
    run(folder, *ask)
    said = capsys.readouterr().err

    assert "batch 'b' was purged at 20" in said
    assert "; to read it: zcat " in said


def test_the_command_that_reads_an_archive_works(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person may copy it into a shell, whatever the folder is called."""
    archived(folder)
    assert run(folder, "purge", "--batch", "b", "--yes") == 0

    with pytest.raises(UnsafeStateError, match="nothing can be exported: batch 'b' was") as refused:
        run(folder, "export", "--batch", "b")

    command = str(refused.value).partition("; to read it: ")[2]
    assert shlex.split(command)[0] == "zcat"
    read = subprocess.run(command, shell=True, capture_output=True, check=True)  # noqa: S602 - ours
    assert [line[:10] for line in read.stdout.splitlines()] == [
        f'{{"id":"t{number}"'.encode() for number in range(3)
    ]


def test_a_batch_without_an_archive_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "purge", "--batch", "b", "--unarchived", "--yes") == 0
    capsys.readouterr()

    run(folder, "replay", "--cancelled", "--batch", "b", "--yes")
    assert "; it has no archive" in capsys.readouterr().err
    assert run(folder, "dead", "show", "t1", "--batch", "b") == 1
    assert "batch 'b' was purged at 20" in capsys.readouterr().err


def test_status_says_that_all_is_archived(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The status also names the time of the purge of a batch that it shows."""
    archived(folder)
    assert run(folder, "purge", "--batch", "b", "--yes") == 0
    capsys.readouterr()

    assert run(folder, "status") == 0
    assert "all batches are archived (1); see: docllm" in capsys.readouterr().out
    assert run(folder, "status", "--archived") == 0
    assert ", purged 20" in capsys.readouterr().out
