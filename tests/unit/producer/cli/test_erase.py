"""`erase` as a command: it says what it cannot reach, and never what it erased."""

from pathlib import Path

import orjson
import pytest

from docllm.schemas.errors import ConfigError
from tests.support import json_schemas
from tests.support.commands import run

LIMITS = (
    "records on topics",
    "dead trim",
    "texts of converted documents",
    "the list of replays",
    "traces at the collector",
    "backups and binary logs",
)


def test_a_dry_run_counts_and_names_the_limits(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    assert run(folder, "erase", "--id", "t1", "--dry-run") == 0

    shown = capsys.readouterr().out
    assert "1 task in 1 batch\n" in shown
    assert all(limit in shown for limit in LIMITS)
    assert "nothing is erased" in shown


def test_an_id_is_gone_afterwards(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    capsys.readouterr()
    assert run(folder, "erase", "--id", "t1", "--yes", "--json") == 0
    document = orjson.loads(capsys.readouterr().out)
    assert json_schemas.faults("erase", document) == []
    assert (document["tasks"], document["erased"]) == (1, 1)

    assert run(folder, "export", "--batch", "b") == 0
    lines = [orjson.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"][:7] for line in lines] == ["t0", "erased:", "t2"]
    assert run(folder, "erase", "--id", "t1", "--dry-run", "--json") == 0
    assert orjson.loads(capsys.readouterr().out)["tasks"] == 0


def test_one_of_both_must_be_named(folder: Path) -> None:
    for options in ((), ("--id", "a", "--tenant", "b")):
        with pytest.raises(ConfigError, match="either --tenant NAME or --id ID"):
            run(folder, "erase", *options)
