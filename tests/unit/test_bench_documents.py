"""`python -m bench.documents` compares the ways to a PDF's text."""

import pytest

from bench import documents


def test_both_ways_are_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that costs more than the goal ends it with 1; a few pages pay for the start."""
    monkeypatch.setattr(documents, "GOAL_CPU_MS", 0.0)

    assert documents.main(["--pages", "3"]) == 1
    table = capsys.readouterr().out
    assert "converting process" in table
    assert "pypdf" in table
    assert "MISSED" in table
