"""`load` as a command: inputs that change, and names."""

import asyncio
import gzip
import json
import os
import re
import shlex
import sqlite3
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from docllm.producer.cli.load import command
from docllm.producer.cli.parser import parser
from docllm.schemas.errors import ConfigError, UnsafeStateError
from docllm.schemas.runtime import collector
from docllm.schemas.settings.sources import LEDGER_FILE, load_config

FIRST, SECOND = b'{"id":"a","prompt":"x"}\n', b'{"id":"b","prompt":"x"}\n'


def run(folder: Path, *arguments: str) -> int:
    config = load_config(flags={}, environ={}, cwd=folder)
    return asyncio.run(command.load(config, parser().parse_args(["load", *arguments])))


@pytest.fixture(autouse=True)
def _no_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the collector of the test process as it is."""
    monkeypatch.setattr(collector, "calm", lambda: None)


@pytest.mark.parametrize(("then", "code"), [(FIRST, 0), (FIRST + SECOND, 4), (SECOND, 4)])
def test_an_input_that_changes_after_the_check_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: bytes, code: int
) -> None:
    """With --strict, the end reports an input that changed after the check."""
    path, check = tmp_path / "growing.jsonl", command._check
    path.write_bytes(FIRST)

    async def write_meanwhile(*given: Any) -> None:
        await check(*given)
        path.write_bytes(then)

    monkeypatch.setattr(command, "_check", write_meanwhile)

    assert run(tmp_path, str(path), "--strict") == code


def test_two_inputs_of_one_name_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two inputs of one name go into one batch, which is reported as perhaps unintended."""
    for folder, line in (("one", FIRST), ("two", SECOND)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tasks.jsonl").write_bytes(line)

    assert run(tmp_path, str(tmp_path / "one" / "tasks.jsonl")) == 0
    assert capsys.readouterr().err == ""

    assert run(tmp_path, str(tmp_path / "two" / "tasks.jsonl")) == 0
    assert capsys.readouterr().err.startswith("batch tasks had 1 task already; ")


def test_an_input_that_is_loaded_again_makes_no_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An input that is loaded again, after an interruption or because it grew, is silent."""
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(FIRST + SECOND)

    for arguments in (["--limit", "1"], [], []):
        assert run(tmp_path, str(path), *arguments) == 0

    captured = capsys.readouterr()
    assert captured.err == ""
    assert "1 task loaded, 1 loaded already" in captured.out
    assert "nothing new, 2 loaded already" in captured.out


def test_documents_that_agents_may_not_read_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Documents that agents may not read are reported before their tasks are dead.

    With embedded parts, the current folder is the only root.
    """
    here, other_folder = tmp_path / "here", tmp_path / "there"
    for folder in (here, other_folder):
        folder.mkdir()
        (folder / "a.txt").write_text("text")
    monkeypatch.chdir(here)
    question = ("--prompt", "{document}", "--by-uri")

    assert run(here, "--documents", ".", *question) == 0
    assert capsys.readouterr().err == ""

    for more in (["--dry-run"], []):
        assert run(here, "--documents", str(other_folder), *question, *more) == 0
        assert capsys.readouterr().err.endswith(
            f"before you start agents, set: DOCLLM_DOCUMENT_ROOTS={here}:{other_folder}\n"
        )

    config = load_config(flags={}, environ={"DOCLLM_DOCUMENT_ROOTS": str(tmp_path)}, cwd=here)
    assert (
        asyncio.run(
            command.load(
                config, parser().parse_args(["load", "--documents", str(other_folder), *question])
            )
        )
        == 0
    )
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("more", "where", "into"),
    [([], "in ", " with --batch {}"), (["--strict"], "nothing is loaded: ", "")],
)
def test_no_repair_is_suggested_for_rejects_without_text(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    where: str,
    into: str,
) -> None:
    """No repair in the rejects file is suggested for lines without text there.

    Such lines are files that are no documents, and lines too large to keep.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\xff")
    (tmp_path / "long.jsonl").write_bytes(b"x" * (4 << 20))

    assert run(tmp_path, "--documents", "papers", "--prompt", "{document}", *more) == 1
    documents = capsys.readouterr().out
    assert run(tmp_path, "long.jsonl", *more) == 1
    long = capsys.readouterr().out

    assert [where in message for message in (documents, long)] == [True] * 2
    assert (
        f"; repair or convert the documents, and load them again{into.format('papers')}\n"
        in documents
    )
    assert f"; repair the input, and load it again{into.format('long')}\n" in long
    assert "repair `text`" not in documents + long


def test_the_suggested_command_loads_rejects_into_their_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has the command that loads the rejects into their batch.

    The rejects file's name does not give the batch. A line without text there must come from the
    input.
    """
    monkeypatch.chdir(tmp_path)
    path, rejects = tmp_path / "tasks.jsonl", tmp_path / "tasks.jsonl.rejects.jsonl"
    path.write_bytes(FIRST + b"{broken\n" + b"x" * (4 << 20) + b"\n")

    assert run(tmp_path, str(path), "--batch", "prod 1", "--group", "g") == 1
    lines_printed = capsys.readouterr().out.splitlines()[-2:]
    rejects.write_text(
        rejects.read_text().replace("{broken", SECOND.decode().strip().replace('"', '\\"'))
    )
    command = shlex.split(lines_printed[0].partition("then: ")[2])
    assert run(tmp_path, *command[2:]) == 1

    assert command[:2] == ["docllm", "load"]
    assert capsys.readouterr().out.startswith("batch prod 1: 1 task loaded; ")
    assert lines_printed[1].startswith("1 of them have no `text` there; ")
    assert lines_printed[1].endswith(
        "; once the others are loaded, repair the input, and load it again with --batch 'prod 1'"
    )


def test_where_nothing_was_loaded_the_input_is_to_be_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If nothing was loaded, the input must be repaired: the rejects have only the bad lines."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.jsonl").write_bytes(FIRST + b"{}\n")

    assert run(tmp_path, "bad.jsonl", "--strict") == 1

    rejects = tmp_path / "bad.jsonl.rejects.jsonl"
    assert (
        capsys.readouterr().out
        == f"nothing is loaded: 1 bad line in {rejects}; repair the input, and load it again\n"
    )


@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--strict"]])
def test_a_cancelled_batch_takes_no_load_and_a_dry_run_says_so(
    tmp_path: Path, more: list[str]
) -> None:
    """Load and dry run end with the same error for a cancelled batch.

    An input without a task needs no batch.
    """
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(FIRST)
    assert run(tmp_path, str(path)) == 0
    cancel = parser().parse_args(["cancel", "--batch", "tasks"])
    assert asyncio.run(cancel.run(load_config(flags={}, environ={}, cwd=tmp_path), cancel)) == 0

    with pytest.raises(
        UnsafeStateError, match="'tasks' was cancelled; load under another name with --batch"
    ):
        run(tmp_path, str(path), *more)

    path.write_bytes(b"\n")
    assert run(tmp_path, str(path), *more) == 0


@pytest.mark.parametrize(("more", "done"), [([], "loaded"), (["--dry-run"], "to load")])
def test_the_estimate_is_of_the_new_tasks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], done: str
) -> None:
    """After an interruption, the estimate is the cost of the rest."""
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(FIRST)
    assert run(tmp_path, str(path)) == 0
    path.write_bytes(FIRST + SECOND + SECOND)
    capsys.readouterr()

    assert run(tmp_path, str(path), *more) == 0
    result = f" 1 task {done}, 1 loaded already, 1 line repeated in the input; about 1 task, "
    assert result in capsys.readouterr().out

    path.write_bytes(FIRST)
    assert run(tmp_path, str(path), *more) == 0
    assert capsys.readouterr().out.endswith(" nothing new, 1 loaded already\n")


@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--strict"]])
def test_an_input_without_a_task_line_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    """An input without a task line is reported: the program that made it may have failed.

    An input that was loaded before, or of bad lines only, has lines.
    """
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b"\n \n")

    assert run(tmp_path, str(path), *more) == 0
    assert capsys.readouterr().out.endswith(" the input has no task line\n")

    path.write_bytes(b"{}\n")
    assert run(tmp_path, str(path), *more) == 1
    assert "no task line" not in capsys.readouterr().out


@pytest.mark.parametrize("more", [[], ["--strict"], ["--dry-run"]])
def test_a_load_stops_at_too_many_bad_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    """A load stops at too many bad lines, so that the rejects file does not fill the disk.

    Such lines have one cause. The file keeps those that were reported.
    """
    path = tmp_path / "tasks.jsonl.gz"
    path.write_bytes(gzip.compress(FIRST + b'{"a":1]\n' * 2000))

    assert run(tmp_path, str(path), "--max-rejects", "1000", *more) == 1

    captured = capsys.readouterr()
    assert (
        "error: stopped after 1,000 bad lines, the most that --max-rejects allows (1,000); "
        "repair what" in captured.err
    )
    rejects = tmp_path / "tasks.jsonl.gz.rejects.jsonl"
    if "--dry-run" in more:
        assert f"1,000 bad lines, which a load writes to {rejects}" in captured.out
        assert not rejects.exists()
    else:
        assert f"1,000 bad lines in {rejects}" in captured.out
        assert len(rejects.read_bytes().splitlines()) == 1000


def test_a_load_that_stopped_at_bad_lines_goes_on_when_more_are_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A load that stopped at bad lines goes on once more are allowed.

    The loaded tasks are recognized, and only then the batch is complete.
    """
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(FIRST + b'{"a":1]\n' * 400 + SECOND)

    assert run(tmp_path, str(path), "--max-rejects", "200") == 1
    assert "loaded of the input, which was not read to its end" in capsys.readouterr().err
    for _ in range(2):
        assert run(tmp_path, str(path), "--max-rejects", "0") == 1
    assert "nothing new, 2 loaded already" in capsys.readouterr().out


@pytest.mark.parametrize("more", [[], ["--strict"], ["--dry-run"]])
def test_an_input_without_tasks_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    """It is one sentence that names the input and the way on: no batch, no rejects file.

    With --max-rejects 0 each line is rejected, and what is behind them is loaded.
    """
    path = tmp_path / "table.jsonl"
    path.write_bytes(b'{"prmpt": "x"}\n' * 150 + FIRST)

    with pytest.raises(ConfigError) as refusal:
        run(tmp_path, str(path), *more)

    assert str(refusal.value).startswith(f"{path}: line 1 has no field of a task line, but prmpt")
    assert str(refusal.value).endswith("; nothing is loaded")
    assert not Path(f"{path}.rejects.jsonl").exists()
    assert capsys.readouterr() == ("", "")

    assert run(tmp_path, str(path), "--max-rejects", "0", *more) == 1


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_pipe_that_nobody_writes_to_holds_no_signal_up(tmp_path: Path, more: list[str]) -> None:
    """It is opened away from the event loop, which goes on meanwhile."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    config = load_config(flags={}, environ={}, cwd=tmp_path)
    options = parser().parse_args(["load", str(pipe), *more])

    async def load_and_write() -> int:
        loading = asyncio.create_task(command.load(config, options))
        while True:
            await asyncio.sleep(0)
            with suppress(OSError):  # until the load waits for a writer
                writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
                break
        os.write(writer, FIRST)
        os.close(writer)
        return await loading

    assert asyncio.run(load_and_write()) == 0


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("", "name one input"),
        ("tasks.jsonl/", "tasks.jsonl/ cannot be read: Not a directory"),
        ("https://host/tasks.jsonl", "fetch it: curl -fsSL https://host/tasks.jsonl | docllm load"),
        ("cut.gz", "cannot be read: Compressed file ended before the end-of-stream marker"),
    ],
)
def test_a_source_that_cannot_be_read_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, words: str
) -> None:
    """The error says what was given, and nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.jsonl").write_bytes(FIRST)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(FIRST)[:-9])

    with pytest.raises(ConfigError, match=re.escape(words)):
        run(tmp_path, source)

    assert not list(tmp_path.glob("*.rejects.jsonl"))


@pytest.mark.parametrize("time", ["+2h", "2090-01-31T08:00:00+01:00"])
def test_a_load_may_wait_for_a_time(tmp_path: Path, time: str) -> None:
    """Lines that name a time of their own keep it."""
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(
        b'{"id":"a","prompt":"x"}\n{"id":"b","prompt":"x","not_before":"2091-01-01T00:00:00Z"}\n'
    )

    assert run(tmp_path, str(path), "--not-before", time) == 0
    with sqlite3.connect(tmp_path / "docllm-data" / LEDGER_FILE) as ledger:
        rows = dict(ledger.execute("SELECT task_key, due_at FROM task").fetchall())

    assert rows[b"b"].startswith("2091-01-01 00:00:00")
    assert rows[b"a"].startswith("2090-01-31 07:00:00") or time == "+2h"
    assert rows[b"a"] > datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")


LATE = b'{"id":"a","prompt":"x","deadline":"2030-01-01T00:00:00Z"'


@pytest.mark.parametrize(
    "time",
    [
        "tomorrow",
        "2030-01-01",
        "2030-01-01T00:00:00",
        "2030-06-30T23:59:60Z",  # a leap second
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "2030-01-01T00:00:00Z",  # the deadline
        "2031-01-01T00:00:00Z",
    ],
)
def test_a_bad_time_is_a_reject(tmp_path: Path, time: str) -> None:
    """It names the line and the field."""
    path = tmp_path / "tasks.jsonl"
    late = LATE + b',"not_before":"' + time.encode() + b'"}'
    path.write_bytes(b'{"id":"good","prompt":"x"}\n' + late + b"\n")

    assert run(tmp_path, str(path)) == 1
    (reject,) = map(json.loads, (tmp_path / "tasks.jsonl.rejects.jsonl").read_text().splitlines())

    assert (reject["line"], reject["field"]) == (2, "not_before")


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_a_deadline_before_the_time_of_a_load_is_a_reject(tmp_path: Path, dry: list[str]) -> None:
    """Such a task would never begin; the line's own time is judged by itself."""
    path = tmp_path / "tasks.jsonl"
    own = LATE.replace(b'"a"', b'"own"') + b',"not_before":"2029-01-01T00:00:00Z"}'
    path.write_bytes(b'{"id":"good","prompt":"x"}\n' + LATE + b"}\n" + own + b"\n")

    assert run(tmp_path, str(path), "--not-before", "2031-01-01T00:00:00Z", *dry) == 1
    rejects = tmp_path / "tasks.jsonl.rejects.jsonl"
    if not dry:
        (reject,) = map(json.loads, rejects.read_text().splitlines())
        assert (reject["line"], reject["field"]) == (2, "deadline")


@pytest.mark.parametrize(
    ("time", "stored"),
    [
        ("2091-01-01t00:00:00z", "2091-01-01 00:00:00"),
        ("2091-01-01T00:00:00.25+14:00", "2090-12-31 10:00:00.250"),
        ("1999-12-31T23:59:59-00:00", "1999-12-31 23:59:59"),  # due since long ago
    ],
)
def test_a_time_is_stored_in_utc(tmp_path: Path, time: str, stored: str) -> None:
    """Whatever its zone and its letters; a time in the past is no mistake."""
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps({"id": "a", "prompt": "x", "not_before": time}))

    assert run(tmp_path, str(path)) == 0
    with sqlite3.connect(tmp_path / "docllm-data" / LEDGER_FILE) as ledger:
        ((due_at,),) = ledger.execute("SELECT due_at FROM waiting").fetchall()

    assert due_at.startswith(stored)


@pytest.mark.parametrize(
    "time",
    ["2h", "+2", "+-2h", "+0s", "+9999999d", "tomorrow", "2030-01-01", "2030-01-01T00:00:00"],
)
def test_a_bad_time_of_a_load_is_a_wrong_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], time: str
) -> None:
    """The message says how to write it."""
    with pytest.raises(SystemExit) as ended:
        run(tmp_path, "x.jsonl", "--not-before", time)

    assert ended.value.code == 2
    assert "write +2h, or RFC 3339" in capsys.readouterr().err


def test_a_document_for_scripts_has_the_warnings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script need not read stderr to learn that its tasks will be dead."""
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'{"id":"a","prompt":"x","deadline":"2001-01-01T00:00:00Z"}\n')

    assert run(tmp_path, str(path), "--json") == 0
    loaded = capsys.readouterr()

    (warning,) = json.loads(loaded.out)["warnings"]
    assert "deadline" in warning
    assert loaded.err == f"{warning}\n"


def test_the_advice_for_bad_lines_keeps_the_allowed_types(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without them, the repaired lines would be refused."""
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(b'{"id":"a"}\n')

    assert run(tmp_path, str(path), "--allow-type", "mine", "--allow-type", "ours") == 1

    assert capsys.readouterr().out.endswith(" --allow-type mine --allow-type ours\n")


def test_a_table_is_loaded_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its rows are recognized at the second load; a row with another text is another content."""
    path, more = tmp_path / "a.csv", ["--prompt", "Sum up: {document}", "--strict"]
    path.write_text("id,text,note\na,x,1\nb,y,2\n", encoding="utf-8")

    assert run(tmp_path, str(path), *more) == 0
    assert "batch a: 2 tasks loaded" in capsys.readouterr().out
    assert run(tmp_path, str(path), *more) == 0
    assert "batch a: nothing new, 2 loaded already" in capsys.readouterr().out
    path.write_text("id,text\na,x\nb,z\n", encoding="utf-8")
    assert run(tmp_path, str(path), *more) == 1

    said = capsys.readouterr()
    assert "row 2: id 'b' is in batch 'a' already with other content" in said.err
    assert "give the row another id" in said.err
    assert "1 bad row in" in said.out


def test_columns_that_are_not_taken_are_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --strict the table is read twice."""
    path = tmp_path / "a.csv"
    path.write_text("id,prompt,note\na,x,1\n", encoding="utf-8")

    assert run(tmp_path, str(path), "--strict") == 0
    assert capsys.readouterr().err.count("nothing is taken from 'note'") == 1


def test_a_dry_run_leaves_every_file_as_it_is(tmp_path: Path) -> None:
    """Rejects of an earlier load stay, and a file of that name is no matter of a dry run."""
    path, rejects = tmp_path / "tasks.jsonl", tmp_path / "tasks.jsonl.rejects.jsonl"
    path.write_bytes(FIRST + b"{}\n")
    for before in (None, b"my own notes", b""):
        if before is not None:
            rejects.write_bytes(before)
        for content, code in ((FIRST + b"{}\n", 1), (FIRST, 0)):
            path.write_bytes(content)
            assert run(tmp_path, str(path), "--dry-run") == code
            assert (rejects.read_bytes() if rejects.exists() else None) == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [path.name, rejects.name]


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_documents_under_another_prompt_are_not_to_be_repaired(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
) -> None:
    """The advice to repair is for the bad file beside them alone."""
    monkeypatch.chdir(tmp_path)  # the rejects file of documents lies there
    folder = tmp_path / "papers"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("some words")
    load = ("--documents", str(folder), "--batch", "papers", "--prompt")
    assert run(tmp_path, *load, "Sum up: {document}") == 0
    (folder / "empty.txt").touch()
    capsys.readouterr()

    assert run(tmp_path, *load, "Translate: {document}", *more) == 1

    said = capsys.readouterr().out
    assert "; for 2 the reason above names the ways on; for the others, repair or convert" in said


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_repeated_line_that_was_loaded_before_is_counted_once_as_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(FIRST + b'{"id":"other","prompt":"x"}\n')
    assert run(tmp_path, str(path)) == 0
    path.write_bytes(FIRST + SECOND + FIRST + FIRST)
    capsys.readouterr()

    assert run(tmp_path, str(path), *more) == 0

    said = capsys.readouterr().out
    assert ", 1 loaded already, 2 lines repeated in the input" in said


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_line_twice_in_the_input_is_not_loaded_already(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    """It is a repeated line, however many tasks the batch had before."""
    path, other = tmp_path / "tasks.jsonl", tmp_path / "other.jsonl"
    other.write_bytes(b"".join(b'{"id":"o%d","prompt":"x"}\n' % n for n in range(3)))
    path.write_bytes(FIRST + SECOND + FIRST + b'{"id":"o1","prompt":"x"}\n')
    assert run(tmp_path, str(other), "--batch", "tasks") == 0
    capsys.readouterr()

    assert run(tmp_path, str(path), *more) == 0

    said = capsys.readouterr().out
    assert "2 tasks" in said
    assert ", 1 loaded already, 1 line repeated in the input" in said
