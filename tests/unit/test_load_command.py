"""`load` as a command: what it makes of an input that does not keep still, and of names."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from producer.__main__ import _parser
from producer.commands import load
from schemas.settings import load_config

FIRST, SECOND = b'{"id":"a","prompt":"x"}\n', b'{"id":"b","prompt":"x"}\n'


def run(folder: Path, *arguments: str) -> int:
    config = load_config(flags={}, environ={}, cwd=folder)
    return asyncio.run(load.load(config, _parser().parse_args(["load", *arguments])))


@pytest.mark.parametrize(("then", "code"), [(FIRST, 0), (FIRST + SECOND, 4), (SECOND, 4)])
def test_an_input_that_changes_after_it_was_checked_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: bytes, code: int
) -> None:
    """With --strict what is loaded is what was checked, or the end says that it is not."""
    path, check = tmp_path / "growing.jsonl", load._check
    path.write_bytes(FIRST)

    async def write_meanwhile(*given: Any) -> None:
        await check(*given)
        path.write_bytes(then)

    monkeypatch.setattr(load, "_check", write_meanwhile)
    monkeypatch.setattr(load.collector, "calm", lambda: None)

    assert run(tmp_path, str(path), "--strict") == code
