"""`export` of batches that are unfinished, and batches that do not exist."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from sqlalchemy import update

from docllm.producer.ledger.store import batches_of
from docllm.schemas.errors import ConfigError
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.tables import task
from docllm.schemas.runtime import collector
from docllm.schemas.settings.sources import ledger_url
from docllm.schemas.task.states import Status
from tests.support.commands import config_of, run


async def interrupted(_: object, lines: Iterable[object]) -> None:
    list(lines)
    raise asyncio.CancelledError


def finish(folder: Path, batch: str) -> None:
    """Make the batch's tasks final, without an agent."""
    database = Database(ledger_url(config_of(folder)))
    with database.engine.begin() as connection:
        (batch_id,) = batches_of(connection, "docllm", batch)
        connection.execute(
            update(task).where(task.c.batch_id == batch_id).values(status=int(Status.CANCELLED))
        )
    database.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a ledger with batches b0, b1 and b2 of one, two and three tasks; b1 is final."""
    monkeypatch.setattr(collector, "calm", lambda: None)
    for number in range(3):
        lines = tmp_path / f"b{number}.jsonl"
        lines.write_text(
            "".join(f'{{"id":"t{task}","prompt":"x"}}\n' for task in range(number + 1))
        )
        assert run(tmp_path, "load", str(lines)) == 0
    finish(tmp_path, "b1")
    return tmp_path


def test_each_batch_that_is_not_final_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each unfinished batch is named with its own count."""
    capsys.readouterr()

    assert run(folder, "export") == 0

    assert capsys.readouterr().err.splitlines() == [
        "incomplete: 4 of 6 tasks are not final yet; export again when they are",
        "  batch b0: 1 of 1",
        "  batch b2: 3 of 3",
    ]
    assert run(folder, "export", "--batch", "b1") == 0
    assert capsys.readouterr().err == ""


def test_a_load_that_did_not_end_is_reported(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that did not end is reported, because all loaded tasks may be final.

    Nothing else shows that more tasks will come.
    """
    with monkeypatch.context() as patch:
        patch.setattr("docllm.producer.loading.loader.Loader._load", interrupted)
        with pytest.raises(asyncio.CancelledError):
            run(folder, "load", str(folder / "b1.jsonl"))
    assert (
        "batch b1: interrupted, with 0 tasks loaded; start the same load again for the rest"
        in capsys.readouterr().err
    )
    to_come = (
        "batch b1: its load has not ended; if none is running, start the same load again for "
        "the rest"
    )

    assert run(folder, "export", "--batch", "b1") == 0
    assert capsys.readouterr().err.splitlines() == [f"incomplete: {to_come}"]
    assert run(folder, "export", "--batch", "b0") == 0
    assert "b1" not in capsys.readouterr().err
    assert run(folder, "status") == 0
    assert to_come in capsys.readouterr().out.splitlines()
    assert run(folder, "status", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert [batch["half_loaded"] for batch in status["batches"]] == [False, True, False]
    assert run(folder, "load", str(folder / "b1.jsonl")) == 0
    capsys.readouterr()
    assert run(folder, "export", "--batch", "b1") == 0
    assert capsys.readouterr().err == ""


def test_no_more_batches_are_named_than_a_screen_holds(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only as many batches are named as a screen holds, with the number of the others."""
    monkeypatch.setattr("docllm.producer.cli.export.INCOMPLETE_SHOWN", 1)
    capsys.readouterr()

    assert run(folder, "export") == 0

    assert capsys.readouterr().err.splitlines()[1:] == ["  batch b0: 1 of 1", "  and 1 more"]


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_standard_output_can_be_named(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """`-` means standard output, as it means standard input for `load`.

    A file of that name would leave a pipe empty.
    """
    monkeypatch.chdir(folder)
    capfd.readouterr()

    assert run(folder, "export", "--batch", "b1", name) == 0

    assert len(capfd.readouterr().out.splitlines()) == 2
    assert not (folder / "-").exists()


def test_an_empty_file_name_is_not_standard_output(folder: Path) -> None:
    """A script whose variable is empty must hear of it, rather than print all results."""
    with pytest.raises(ConfigError, match="cannot be written"):
        run(folder, "export", "--batch", "b1", "")


@pytest.mark.parametrize("command", ["status", "export", "cancel", "dead list"])
def test_the_nearest_batch_is_named(folder: Path, command: str) -> None:
    """A misspelt batch is refused by all commands alike."""
    with pytest.raises(ConfigError, match=r"has no batch 'b01'; did you mean 'b1'\?; see: "):
        run(folder, *command.split(), "--batch", "b01")
