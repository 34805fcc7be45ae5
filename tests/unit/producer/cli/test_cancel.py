"""`cancel --id`: the command cancels one task and names it."""

from pathlib import Path

import pytest

from docllm.producer.cli.cancel import actor
from docllm.schemas.runtime import collector
from tests.support.commands import run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a ledger whose batches night and day have a task t3, and day alone a task t4."""
    monkeypatch.setattr(collector, "calm", lambda: None)
    for batch, keys in (("night", ["t3"]), ("day", ["t3", "t4"])):
        lines = tmp_path / f"{batch}.jsonl"
        lines.write_text("".join(f'{{"id":"{key}","prompt":"x"}}\n' for key in keys))
        assert run(tmp_path, "load", str(lines)) == 0
    return tmp_path


def test_an_id_of_several_batches_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An id that several batches have is refused, and nothing is cancelled.

    The message names the batches in the words of `show`, with its exit code.
    """
    capsys.readouterr()

    assert run(folder, "cancel", "--id", "t3") == 2
    refused = capsys.readouterr()
    assert run(folder, "show", "t3") == 2

    assert (
        refused.err
        == "error: 2 batches have a task 't3': night, day; name one with --batch\n"
        == capsys.readouterr().err
    )
    assert refused.out == ""
    for batch in ("night", "day"):
        assert run(folder, "cancel", "--id", "t3", "--batch", batch) == 0
        assert capsys.readouterr().out == f"task t3 of batch {batch}: cancelled\n"


def test_the_batch_of_a_task_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer names the task's batch, though nobody asked, also if nothing is left to cancel."""
    capsys.readouterr()

    assert [run(folder, "cancel", "--id", "t4") for _ in range(2)] == [0, 0]

    assert (
        capsys.readouterr().out
        == "task t4 of batch day: cancelled\ntask t4 of batch day: not changed, it is cancelled\n"
    )


def test_a_user_whose_name_is_no_utf_8_can_cancel(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit stores a user name that is not UTF-8 with escapes.

    No ledger can hold such a text otherwise.
    """
    monkeypatch.setenv("LOGNAME", "jos\udce9")

    assert run(folder, "cancel", "--id", "t4") == 0
    assert actor().startswith("jos\\udce9@")
