"""`purge` as a command: what it says before it deletes, and what it refuses."""

from pathlib import Path

import orjson
import pytest

from docllm.schemas.errors import ConfigError, UnsafeStateError
from tests.support import json_schemas
from tests.support.commands import run


def test_what_is_lost_is_told_before_it_is_deleted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A batch without an archive goes only by name, and takes no lines afterwards."""
    with pytest.raises(UnsafeStateError, match="it was not archived"):
        run(folder, "purge", "--batch", "b", "--yes")
    capsys.readouterr()
    options = ("purge", "--batch", "b", "--unarchived")

    assert run(folder, *options, "--dry-run") == 0
    shown = capsys.readouterr().out
    assert "3 tasks (0 succeeded, 0 dead, 3 cancelled)" in shown
    assert "NOT archived: what is deleted is lost" in shown
    assert "nothing is deleted" in shown

    assert run(folder, *options, "--yes", "--json") == 0
    document = orjson.loads(capsys.readouterr().out)
    assert json_schemas.faults("purge", document) == []
    assert [(batch["purged"], batch["archive"]) for batch in document["batches"]] == [(3, None)]

    assert run(folder, *options, "--yes") == 0
    assert "it was purged at" in capsys.readouterr().out
    with pytest.raises(UnsafeStateError, match="was purged: its lines would be new tasks"):
        run(folder, "load", str(folder / "b.jsonl"))


def test_old_batches_without_an_archive_are_left(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By age, only archived batches go; the others are named with the reason."""
    assert run(folder, "purge", "--older-than", "2090-01-01", "--yes", "--json") == 0
    document = orjson.loads(capsys.readouterr().out)
    assert json_schemas.faults("purge", document) == []
    assert document["batches"] == []
    assert "left: batch b: it was not archived" in document["warnings"][0]


def test_a_damaged_archive_keeps_its_own_batch_only(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other batches go; the one that is left is named, and refused if asked for by name."""
    (folder / "a").mkdir()
    for name in ("c", "d"):
        (folder / f"{name}.jsonl").write_text('{"id": "1", "prompt": "p"}\n')
        assert run(folder, "load", str(folder / f"{name}.jsonl")) == 0
        assert run(folder, "cancel", "--batch", name) == 0
        assert run(folder, "archive", "--batch", name, "--to", str(folder / "a")) == 0
    (part,) = (folder / "a").glob("c-*/part-*")
    part.write_bytes(part.read_bytes()[::-1])
    capsys.readouterr()

    assert run(folder, "purge", "--older-than", "2090-01-01", "--yes", "--json") == 0
    document = orjson.loads(capsys.readouterr().out)

    assert {batch["batch"]: batch["purged"] for batch in document["batches"]} == {"c": 0, "d": 1}
    (left,) = (warning for warning in document["warnings"] if "batch c" in warning)
    assert "has other content than when the archive was verified" in left
    with pytest.raises(UnsafeStateError, match="has other content"):
        run(folder, "purge", "--batch", "c", "--yes")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((), "either --batch NAME or --older-than 30d"),
        (("--batch", "b", "--older-than", "1h"), "either --batch NAME or --older-than 30d"),
        (("--older-than", "1h", "--unarchived"), "needs the name of a --batch"),
        (("--batch", "c", "--yes"), "has no batch 'c'"),
    ],
)
def test_wrong_options_are_refused(folder: Path, options: tuple[str, ...], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        run(folder, "purge", *options)
