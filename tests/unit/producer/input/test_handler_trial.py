"""Handlers are tried where agents would import them, in a process of their own."""

from pathlib import Path

import pytest

from docllm.producer.input import handler_trial
from docllm.producer.input.handler_trial import broken_handlers
from docllm.schemas.settings.config import TypeConfig


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a folder with handlers, and others that only look like some."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "print('noise')\nasync def good(context): ...\ndef two(context, more): ...\n"
    )
    (tmp_path / "needs.py").write_text("import no_such_module\n")
    (tmp_path / "ends.py").write_text("import os\nos._exit(7)\n")


def tried(**handlers: str | None) -> dict[str, str]:
    return broken_handlers({name: TypeConfig(handler=path) for name, path in handlers.items()})


def test_a_handler_of_this_folder_is_fine() -> None:
    """What its module prints harms nobody."""
    assert tried(a="mine:good", b=None, c="docllm.agent.handlers:map_reduce") == {}


def test_each_handler_that_cannot_be_used_has_its_reason() -> None:
    """The words are those that an agent would end with."""
    broken = tried(a="mine:good", b="mine:none", c="mine:two", d="needs:run", e="nowhere:run")

    assert broken.keys() == {"b", "c", "d", "e"}
    assert "has no function none" in broken["b"]
    assert "must take the context and nothing else" in broken["c"]
    assert "needs a module that is missing: no_such_module" in broken["d"]
    assert "there is no module nowhere" in broken["e"]


def test_a_module_that_ends_its_program_is_told() -> None:
    """It would end an agent too."""
    assert "ends the program that imports it (7)" in tried(a="ends:run")["a"]


def test_nothing_is_started_without_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load without handlers pays nothing."""
    monkeypatch.setattr(handler_trial, "_tried", None)

    assert tried(a=None) == {}
