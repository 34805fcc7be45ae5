"""The parts of the reference pages that come from the code are what the code gives now."""

from pathlib import Path

import pytest

from docllm.schemas.ledger.tables import metadata
from tools import reference


# test_docs.py compares the page of commands, without starting a program for each command.
@pytest.mark.parametrize("page", sorted({*reference.PAGES} - {"commands.md"}))
def test_a_page_is_what_the_code_gives(page: str) -> None:
    """`python -m tools.reference` writes a stale page anew."""
    assert reference.text(page) == reference.filled(reference.text(page))


def test_each_table_and_column_has_a_meaning() -> None:
    """A reader of the ledger finds what each column holds, in one cell of the page."""
    meanings = [
        meaning
        for table in metadata.tables.values()
        for meaning in (table.info["doc"], *(column.doc for column in table.columns))
    ]
    assert [meaning for meaning in meanings if not meaning or "|" in meaning] == []


def test_a_stale_page_is_named_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--check` only names the page; without it the marked part is written, and nothing else."""
    page = "before\n<!-- begin settings (by hand) -->\nold\n<!-- end -->\nafter\n"
    (tmp_path / "settings.md").write_text(page)
    monkeypatch.setattr(reference, "FOLDER", tmp_path)
    monkeypatch.setattr(reference, "PAGES", ("settings.md",))

    assert reference.main(["--check"]) == 1
    assert "docs/reference/settings.md is stale" in capsys.readouterr().out
    assert reference.text("settings.md") == page
    assert reference.main([]) == 0
    written = reference.text("settings.md")
    assert written.startswith(
        "before\n<!-- begin settings (by hand) -->\n\n### At the top\n\n| key |"
    )
    assert "<br>default `64`, variable `DOCLLM_SLOTS` |" in written
    assert written.endswith("|\n<!-- end -->\nafter\n")
    assert reference.main(["--check"]) == 0


def test_a_help_is_what_the_command_prints() -> None:
    """A block that begins with a command and `--help` is filled; other blocks stay."""
    head = "```text\n$ docllm agent resume --help\n"
    page = f"{head}old\n```\nbetween\n```text\n$ ls\n```\n{head}old\n```\n"

    filled = reference.filled(page)

    assert filled.startswith(f"{head}usage: ")
    assert "```\nbetween\n```text\n$ ls\n```\n" in filled
    assert "old" not in filled
    assert filled.count("usage: docllm agent resume") == 2
