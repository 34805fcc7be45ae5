"""What several tests of commands and of their sentences use."""

from pathlib import Path

import pytest

from docllm.schemas.runtime import collector
from tests.support.commands import run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger with three cancelled tasks."""
    monkeypatch.setattr(collector, "calm", lambda: None)
    lines = tmp_path / "b.jsonl"
    lines.write_text("".join(f'{{"id":"t{number}","prompt":"x"}}\n' for number in range(3)))
    assert run(tmp_path, "load", str(lines)) == 0
    assert run(tmp_path, "cancel", "--batch", "b") == 0
    return tmp_path
