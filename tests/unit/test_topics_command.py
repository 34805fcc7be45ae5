"""`topics apply` as a command: what it says of what it leaves as it is."""

import asyncio
from pathlib import Path

import pytest

from producer.__main__ import _parser
from schemas.settings import load_config


def run(folder: Path, *arguments: str) -> int:
    options = _parser().parse_args(("topics", *arguments))
    return int(asyncio.run(options.run(load_config(flags={}, environ={}, cwd=folder), options)))


def test_fewer_partitions_than_there_are_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A number that changes nothing is not taken in silence; without one, nobody has asked for fewer."""
    assert run(tmp_path, "apply", "--partitions", "8") == 0
    assert run(tmp_path, "apply", "--partitions", "8") == 0
    assert run(tmp_path, "apply") == 0
    assert capsys.readouterr().err == ""

    assert run(tmp_path, "apply", "--partitions", "6") == 0
    assert "docllm.tasks keeps its 8 partitions: they can be raised, never lowered" in capsys.readouterr().err.splitlines()
