"""`wait`: its exit codes, and the one line that it writes."""

import asyncio
import json
from pathlib import Path

import pytest

from docllm.producer.app import opened_ledger
from docllm.producer.cli.wait import DEAD, TIMED_OUT
from docllm.producer.ledger import store
from docllm.producer.ledger.status import batch_wait
from docllm.producer.ledger.status.batch_wait import BatchProgress
from docllm.schemas.errors import ConfigError
from docllm.schemas.ledger.database import Connection
from docllm.schemas.runtime import collector
from tests.support import json_schemas
from tests.support.commands import config_of, run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a ledger whose batch `tasks` has two open tasks."""
    monkeypatch.setattr(collector, "calm", lambda: None)
    lines = tmp_path / "tasks.jsonl"
    lines.write_text('{"id":"a","prompt":"x"}\n{"id":"b","prompt":"x"}\n')
    assert run(tmp_path, "load", str(lines)) == 0
    return tmp_path


def half_dead(_connection: Connection, _group: str, _name: str) -> BatchProgress:
    return BatchProgress(total=2, succeeded=1, dead=1, cancelled=0)


def test_a_cancelled_batch_is_done(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wait for a batch that is done ends at once with one line on stdout."""
    assert run(folder, "cancel", "--batch", "tasks") == 0
    capsys.readouterr()

    assert run(folder, "wait", "--batch", "tasks", "--fail-on-dead") == 0

    captured = capsys.readouterr()
    assert captured.out == "batch tasks is done: 0 succeeded, 0 dead, 2 cancelled\n"
    assert captured.err == ""


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--fail-on-dead",), DEAD)])
def test_dead_tasks_fail_the_wait_if_asked(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    code: int,
) -> None:
    """Dead tasks are named with the command that lists them; the exit code is the option's."""
    monkeypatch.setattr(batch_wait, "read_progress", half_dead)
    capsys.readouterr()

    assert run(folder, "wait", "--batch", "tasks", *options) == code

    assert capsys.readouterr().out == (
        "batch tasks is done: 1 succeeded, 1 dead; "
        "see: docllm dead list --batch tasks --group docllm\n"
    )


def test_a_time_out_has_an_exit_code_of_its_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The document is written after a time-out, too, and fits its schema."""
    capsys.readouterr()

    assert run(folder, "wait", "--batch", "tasks", "--timeout", "1s", "--json") == TIMED_OUT

    document = json.loads(capsys.readouterr().out)
    assert (document["done"], document["open"]) == (False, 2)
    assert json_schemas.faults("wait", document) == []


def test_a_load_that_was_interrupted_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All its tasks are final, but the batch never ends by itself: the person must act."""

    async def interrupt() -> None:
        async with opened_ledger(config_of(folder)) as parts:
            into = await parts.transactions.read(store.require_batch, "docllm", "tasks")
            await parts.transactions.write(store.begin_load, into)

    for task_id in "ab":
        assert run(folder, "cancel", "--id", task_id) == 0
    asyncio.run(interrupt())
    capsys.readouterr()

    assert run(folder, "wait", "--batch", "tasks", "--timeout", "1s") == TIMED_OUT

    captured = capsys.readouterr()
    assert captured.err == (
        "batch tasks: its load has not ended; "
        "if none is running, start the same load again for the rest\n"
    )
    assert captured.out == (
        "batch tasks is not done: 0 tasks open, 0 succeeded, 0 dead, 2 cancelled, "
        "its load has not ended; see: docllm status --batch tasks --group docllm\n"
    )


def test_an_unknown_batch_is_an_error(folder: Path) -> None:
    """A mistyped name is no batch that is done."""
    with pytest.raises(ConfigError, match="did you mean 'tasks'"):
        run(folder, "wait", "--batch", "task")
