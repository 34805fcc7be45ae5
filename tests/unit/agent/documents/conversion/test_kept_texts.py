"""Texts are kept for the next question; damaged ones do not count, and the oldest ones go."""

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from docllm.agent.documents.conversion import kept_texts
from docllm.agent.documents.conversion.kept_texts import KeptTexts
from docllm.schemas.text.document_text import ReadText


def test_a_text_is_found_by_its_document_and_the_converters_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another agent finds it too; a new version of a library converts again."""
    KeptTexts(folder=tmp_path / "t", most_bytes=10_000).put(b"raw", ReadText("text ü"))

    kept = KeptTexts(folder=tmp_path / "t", most_bytes=10_000)
    assert (kept.get(b"raw"), kept.get(b"other")) == (ReadText("text ü"), None)
    assert (tmp_path / "t").stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(kept_texts, "converter_version", lambda: "another")
    assert kept.get(b"raw") is None


@pytest.mark.parametrize("change", [lambda old: old[:-1], lambda old: old + b"x", lambda _: b""])
def test_a_damaged_text_does_not_count(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    """A cut or changed file is removed, and the document is converted again."""
    kept = KeptTexts(folder=tmp_path, most_bytes=10_000)
    kept.put(b"raw", ReadText("text"))
    (path,) = tmp_path.iterdir()
    path.write_bytes(change(path.read_bytes()))

    assert kept.get(b"raw") is None
    assert list(tmp_path.iterdir()) == []


def test_the_texts_that_were_not_used_for_longest_go(tmp_path: Path) -> None:
    """The folder stays below its bound, with the texts that were used last."""
    kept = KeptTexts(folder=tmp_path, most_bytes=2000)
    (tmp_path / ".unfinished").write_bytes(b"")
    os.utime(tmp_path / ".unfinished", (0, 0))
    kept.put(b"first", ReadText("x" * 100))
    first = kept._path(b"first")
    for number in range(40):
        os.utime(first, (10_000, 10_000))
        kept.put(str(number).encode(), ReadText("x" * 100))
        os.utime(kept._path(str(number).encode()), (number, number))

    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 2200
    assert kept.get(b"first") == ReadText("x" * 100)
    assert kept.get(b"0") is None
    assert kept.get(b"39") == ReadText("x" * 100)
    assert not (tmp_path / ".unfinished").exists()
    kept.put(b"large", ReadText("x" * 1000))
    assert kept.get(b"large") is None


def test_the_folder_may_be_deleted_at_any_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A person may have to erase texts while agents run; `erase` says so."""
    kept = KeptTexts(folder=tmp_path / "texts", most_bytes=10_000)
    kept.put(b"raw", ReadText("text"))
    shutil.rmtree(tmp_path / "texts")

    assert kept.get(b"raw") is None
    kept.put(b"raw", ReadText("text"))

    assert kept.get(b"raw") == ReadText("text")
    assert caplog.messages == []


def test_a_disk_that_fails_costs_no_task(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The failure of a disk is told once."""
    (tmp_path / "file").write_text("")
    kept = KeptTexts(folder=tmp_path / "file" / "in", most_bytes=10_000)

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            kept.put(b"raw", ReadText("text"))
            assert kept.get(b"raw") is None

    assert len(caplog.records) == 1
    assert "converts its document again" in caplog.text
