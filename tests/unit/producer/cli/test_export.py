"""`export` of batches that are unfinished, and batches that do not exist."""

import asyncio
import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from sqlalchemy import Connection, insert, select, update

from docllm.producer.ledger.store import batches_of
from docllm.schemas.errors import ConfigError
from docllm.schemas.ledger.database import Database
from docllm.schemas.ledger.tables import batch, task, task_result
from docllm.schemas.runtime import collector, crash
from docllm.schemas.settings.sources import ledger_url
from docllm.schemas.task.result.codec import VALUE
from docllm.schemas.task.states import Status
from tests.support.commands import config_of, run


async def interrupted(_: object, lines: Iterable[object]) -> None:
    list(lines)
    raise asyncio.CancelledError


# The database's times are UTC without a zone.
LAST_YEAR = datetime(2025, 1, 31, 18)  # noqa: DTZ001


def finish(folder: Path, batch: str) -> None:
    """Make the batch's tasks final, without an agent."""
    database = Database(ledger_url(config_of(folder)))
    with database.engine.begin() as connection:
        (batch_id,) = batches_of(connection, "docllm", batch)
        connection.execute(
            update(task).where(task.c.batch_id == batch_id).values(status=int(Status.CANCELLED))
        )
    database.close()


def answer(folder: Path, batch_name: str, key: str, *, at: datetime | None = LAST_YEAR) -> None:
    """Store a result of a task, as of a time; None is now."""
    database = Database(ledger_url(config_of(folder)))
    with database.engine.begin() as connection:
        task_id = _task(connection, batch_name, key)
        connection.execute(
            update(task).where(task.c.id == task_id).values(status=int(Status.SUCCEEDED))
        )
        body = json.dumps({"total": 5, "of": key}).encode()
        row: dict[str, Any] = {"task_id": task_id, "codec": VALUE, "body": body}
        connection.execute(insert(task_result), row | ({"created_at": at} if at else {}))
    database.close()


def _task(connection: Connection, batch_name: str, key: str) -> int:
    named = select(task.c.id).join(batch, batch.c.id == task.c.batch_id)
    named = named.where(batch.c.name == batch_name, task.c.task_key == key.encode())
    return int(connection.execute(named).scalar_one())


def exported(folder: Path, *options: str) -> list[str]:
    """Return the ids of an export of batch b2."""
    path = folder / "out.jsonl"
    assert run(folder, "export", "--batch", "b2", str(path), *options) == 0
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


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


def test_the_ending_of_the_file_chooses_the_format(folder: Path) -> None:
    """A file called .csv is CSV, one called .parquet is Parquet, all others are JSON lines."""
    answer(folder, "b2", "t1")
    for name in ("out.csv", "out.PARQUET", "out.txt"):
        assert run(folder, "export", "--batch", "b2", str(folder / name)) == 0

    with (folder / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["t0", "t1", "t2"]
    assert rows[1]["result"] == '{"total": 5, "of": "t1"}'
    table = pyarrow.parquet.read_table(folder / "out.PARQUET")
    assert table["status"].to_pylist() == ["pending", "succeeded", "pending"]
    lines = (folder / "out.txt").read_text().splitlines()
    assert json.loads(lines[1])["result"] == {"total": 5, "of": "t1"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--format jsonl out.csv", "--format jsonl cannot be written to .*out.csv: its name says"),
        ("--format csv out.jsonl", "its name says jsonl; name another file, or leave --format out"),
        ("--format openai out.parquet", "its name says parquet"),
        ("--format openai --flatten", "--flatten makes a table, and --format openai has none"),
        ("--bom out.jsonl", "--bom is for CSV, and the format is jsonl"),
        ("--only-new --status dead", "leave out --id and --status"),
        ("--id t9", "no task 't9' in a batch of group docllm; see: docllm status"),
        ("--id t0", "3 batches have a task 't0': b0, b1, b2; name one with --batch"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: str, message: str
) -> None:
    """Nothing is written under a name that says otherwise."""
    monkeypatch.chdir(folder)

    with pytest.raises(ConfigError, match=message):
        run(folder, "export", *options.split())

    assert not list(folder.glob("out.*"))


def test_parquet_says_which_extra_it_needs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(ConfigError, match=r"needs the extra `archive`; run: pip install"):
        run(folder, "export", str(folder / "out.parquet"))


def test_tasks_are_selected_by_id_and_state(folder: Path) -> None:
    """Both bounds hold together, and no task is written twice."""
    answer(folder, "b2", "t1")

    assert exported(folder, "--status", "succeeded") == ["t1"]
    assert exported(folder, "--status", "pending", "--status", "succeeded") == ["t0", "t1", "t2"]
    assert exported(folder, "--status", "dead") == []
    assert exported(folder, "--id", "t2") == ["t2"]
    assert exported(folder, "--id", "t2", "--status", "succeeded") == []


def test_only_new_results_are_exported_once(folder: Path) -> None:
    """Each export has the results since the last one; other exports move nothing."""
    answer(folder, "b2", "t1")
    assert exported(folder, "--only-new") == ["t1"]
    assert exported(folder, "--only-new") == []
    assert exported(folder) == ["t0", "t1", "t2"]

    answer(folder, "b2", "t0", at=None)
    assert exported(folder, "--only-new") == []  # it waits until it is settled
    database = Database(ledger_url(config_of(folder)))
    with database.engine.begin() as connection:
        since = connection.execute(
            select(batch.c.exported_until).where(batch.c.name == "b2")
        ).scalar_one()
        connection.execute(
            update(batch)
            .where(batch.c.name == "b2")
            .values(exported_until=since - timedelta(minutes=1))
        )
        connection.execute(
            update(task_result)
            .where(task_result.c.task_id == _task(connection, "b2", "t0"))
            .values(created_at=since)
        )
    database.close()
    assert exported(folder, "--only-new") == ["t0"]


def test_new_results_that_were_not_written_are_new_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, a crash behind the file, a reader that leaves: the results come again."""
    answer(folder, "b2", "t1")
    with monkeypatch.context() as patch:
        patch.setattr("docllm.producer.text.output_file.os.fsync", full_disk)
        with pytest.raises(ConfigError):
            exported(folder, "--only-new")
    with monkeypatch.context() as patch:
        patch.setattr(crash, "reach", killed)
        with pytest.raises(asyncio.CancelledError):
            exported(folder, "--only-new")
    with monkeypatch.context() as patch:
        patch.setattr("docllm.producer.cli.export.standard_output", closed_pipe)
        assert run(folder, "export", "--batch", "b2", "--only-new") == 0

    assert exported(folder, "--only-new") == ["t1"]


def full_disk(_: int) -> None:
    raise OSError(28, "No space left on device")


def killed(point: str) -> None:
    if point == "export.whole":
        raise asyncio.CancelledError


class ClosedPipe(io.BytesIO):
    def write(self, _: object) -> int:
        raise BrokenPipeError


@contextmanager
def closed_pipe() -> Iterator[ClosedPipe]:
    with suppress(BrokenPipeError):
        yield ClosedPipe()


def test_the_lines_of_openai_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of OpenAI has no line for a task that is not final, and the message counts lines."""
    answer(folder, "b2", "t1")
    path = folder / "out.jsonl"
    capsys.readouterr()

    assert run(folder, "export", "--batch", "b2", "--format", "openai", str(path)) == 0

    assert len(path.read_text().splitlines()) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"1 line written to {path}"


def test_a_flat_table_is_announced_if_it_cannot_have_all_columns(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person hears where the other fields are."""
    answer(folder, "b2", "t1")
    monkeypatch.setattr("docllm.producer.cli.export.MAX_FLAT", 1)
    path = folder / "out.csv"

    assert run(folder, "export", "--batch", "b2", str(path), "--flatten") == 0

    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert (rows[1]["result"], rows[1]["result.total"]) == ('{"of":"t1"}', "5")
    assert "results have more than 1 fields" in capsys.readouterr().err


def test_a_table_on_a_terminal_is_inert(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cell can act on the terminal, and Parquet is refused there."""
    answer(folder, "b2", "t1")
    database = Database(ledger_url(config_of(folder)))
    with database.engine.begin() as connection:
        connection.execute(update(task_result).values(body=b'"\\u001b[2J"'))
    database.close()
    monkeypatch.setattr("docllm.producer.cli.export.sys.stdout.isatty", lambda: True, raising=False)
    capfd.readouterr()

    assert run(folder, "export", "--batch", "b2", "--format", "csv") == 0
    out = capfd.readouterr().out
    assert "\x1b" not in out
    assert "\\u001b[2J" in out
    with pytest.raises(ConfigError, match="Parquet is not for a terminal"):
        run(folder, "export", "--format", "parquet")
