"""The demo costs nothing unless a person asks for it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest

FILE = Path(__file__).parents[2] / "examples" / "demo.py"


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The demo as a module, in its own folder, in a shell with a paid provider's key."""
    spec = importlib.util.spec_from_file_location("demo", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "DOCLLM_LLM_BASE_URL", "DOCLLM_LLM_API_KEY"):
        monkeypatch.setenv(name, "http://paid/v1")
    return module


@pytest.mark.parametrize(("arguments", "rehearsal"), [([], ["--rehearsal"]), (["--provider"], [])])
def test_a_provider_is_asked_only_when_it_is_asked_for(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, arguments: list[str], rehearsal: list[str]
) -> None:
    """A provider is asked only on request: a key in the shell is no consent to pay."""
    ran: list[tuple[str, ...]] = []

    def run(*command: str, **_: Any) -> None:
        ran.append(command)

    monkeypatch.setattr(demo, "run", run)
    monkeypatch.setattr(demo, "show", lambda *_, **__: 0)
    monkeypatch.setattr(sys, "argv", ["demo.py", *arguments])

    assert demo.main() == 0
    assert [command[0] for command in ran] == ["producer", "agent", "producer"]
    assert [option for option in ran[1] if option == "--rehearsal"] == rehearsal


def test_an_answer_that_looks_like_markup_is_shown_as_it_is(
    demo: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
