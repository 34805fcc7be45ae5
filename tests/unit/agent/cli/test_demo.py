"""The demo costs nothing unless a person asks for it."""

import importlib.util
import sys
from argparse import Namespace
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest

from docllm.agent.cli import demo

FILE = Path(__file__).parents[4] / "examples" / "demo.py"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The clone's demo as a module, in its own folder, in a shell with a paid provider's key."""
    spec = importlib.util.spec_from_file_location("demo", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "DOCLLM_LLM_BASE_URL", "DOCLLM_LLM_API_KEY"):
        monkeypatch.setenv(name, "http://paid/v1")
    return module


@pytest.mark.parametrize(
    ("arguments", "commands", "asked"),
    [
        ([], ["load", "export"], "http://rehearsal/v1"),
        (["--provider"], ["load", "agent", "export"], None),
    ],
)
def test_a_provider_is_asked_only_when_it_is_asked_for(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    commands: list[str],
    asked: str | None,
) -> None:
    """A provider is asked only on request: a key in the shell is no consent to pay."""
    ran: list[str] = []
    addresses: set[str | None] = set()

    def run(*command: str, environment: Mapping[str, str], **_: Any) -> None:
        ran.append(command[0])
        addresses.add(environment.get("DOCLLM_LLM_BASE_URL"))

    monkeypatch.setattr(demo, "run_command", run)
    monkeypatch.setattr(demo, "rehearsal_child", lambda _: nullcontext("http://rehearsal/v1"))
    monkeypatch.setattr(demo, "STORIES", {"kill": lambda _stage: ""})
    monkeypatch.setattr(demo, "show", lambda *_, **__: 0)
    monkeypatch.setattr(demo, "sum_up", lambda *_: 0)
    monkeypatch.setattr(sys, "argv", ["demo.py", *arguments])

    assert script.main() == 0
    assert (ran, addresses) == (commands, {asked})


def test_a_task_that_is_not_final_is_a_lost_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line says so, and the demo fails."""
    results = tmp_path / "results.jsonl"
    states = ("succeeded", "dead", "pending")
    results.write_bytes(b"\n".join(orjson.dumps({"status": state}) for state in states))

    assert demo.sum_up(results, 4, 1, "because it rains") == 1

    assert capsys.readouterr().out.split("\n")[1] == (
        "4 tasks: 1 succeeded, 1 dead (replay: docllm replay --batch standard-library), "
        "1 call repeated because it rains, 2 lost"
    )


def test_an_answer_that_looks_like_markup_is_shown_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An answer that looks like markup, for example a link, does not end the paid demo."""
    row = {
        "id": "[b]",
        "status": "succeeded",
        "tokens_in": 1,
        "result": "see [url]x[/url]\x1b[2J",
        "error": None,
    }
    results = tmp_path / "results.jsonl"
    results.write_bytes(orjson.dumps(row))

    assert demo.show(results, 1.0, rehearsal=True) == 0

    output = capsys.readouterr().out
    assert ("[b]" in output, "see [url]x[/url] [2J" in output, "\x1b[2J" in output) == (
        True,
        True,
        False,
    )


def test_a_folder_with_files_of_a_person_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo begins with an empty folder, but removes nothing that it did not make."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / demo.FOLDER).mkdir()
    mine = tmp_path / demo.FOLDER / "mine.txt"
    mine.write_text("mine")

    assert demo.run(Namespace(provider=False, story="kill")) == 2
    assert mine.read_text() == "mine"
    assert "rename the folder" in capsys.readouterr().err
