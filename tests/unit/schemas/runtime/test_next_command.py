"""A command in a message names the configuration file of the program that prints it."""

import logging
import sys
from pathlib import Path

import pytest

from docllm.agent.cli import parser as agent
from docllm.agent.reporting.telemetry import configure_logging
from docllm.producer import __main__ as producer
from docllm.schemas.runtime import collector
from docllm.schemas.runtime.next_command import with_config


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "see: python -m producer status --group g",
            "see: python -m producer status --config my.toml --group g",
        ),
        (
            "run: python -m producer topics apply",
            "run: python -m producer topics apply --config my.toml",
        ),
        (
            "python -m producer guard open BATCH",
            "python -m producer guard open --config my.toml BATCH",
        ),
        (
            "run `python -m producer topics apply`",
            "run `python -m producer topics apply --config my.toml`",
        ),
        (
            "python -m producer load /a b.jsonl",
            "python -m producer load --config my.toml /a b.jsonl",
        ),
        ("python -m agent --group g", "python -m agent --config my.toml --group g"),
        (
            "python -m agent resume fast --group g",
            "python -m agent resume --config my.toml fast --group g",
        ),
        ("python -m agent rehearsal-llm", "python -m agent rehearsal-llm"),
        ("python -m producer migrate --config other", "python -m producer migrate --config other"),
    ],
)
def test_a_command_names_the_file(text: str, wanted: str) -> None:
    """The option follows the words of the command; the rehearsal LLM has no such option."""
    assert with_config(text, "my.toml") == wanted
    assert with_config(text, None) == text


def test_a_file_is_quoted_for_the_shell() -> None:
    """The file name is quoted for the shell, because people copy the line."""
    assert (
        with_config("python -m producer migrate", "my files/d.toml")
        == "python -m producer migrate --config 'my files/d.toml'"
    )


@pytest.mark.parametrize("program", ["/usr/bin/docllm", "/lib/agent/docllm.py"])
def test_a_command_is_written_as_the_program_was_started(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that was started as `docllm` names its commands so, and its children do too."""
    monkeypatch.setattr(sys, "argv", [program, "status"])
    text = "python -m producer load FILE && python -m agent resume a; python -m agents"

    assert with_config(text, None) == "docllm load FILE && docllm agent resume a; python -m agents"
    assert with_config("run: python -m producer migrate", "my.toml") == (
        "run: docllm migrate --config my.toml"
    )


COMMANDS = (
    "export", "status", "load tasks.jsonl", "status", "status --json", "export --batch no",
    "status --batch no", "cancel --batch no", "cancel --id no", "dead show no",
    "dead list --batch no", "replay", "replay --id no --dry-run", "guard list no",
)  # fmt: skip
WITHOUT_A_BUS = ("topics check", "check")


@pytest.mark.parametrize("named", [True, False])
def test_every_suggested_command_names_the_configuration_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    named: bool,
) -> None:
    """Every command names the configuration file, if one was named.

    A copied line used to work on another ledger, the embedded one.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(collector, "calm", lambda: None)
    (tmp_path / "my.toml").write_text("")
    (tmp_path / "tasks.jsonl").write_text('{"id":"a","prompt":"x"}\n{broken\n')
    config = ["--config", "my.toml"] if named else []
    suggestions: dict[str, list[str]] = {}

    def run(line: str) -> None:
        producer.main([*line.split(), *config])
        suggestions[line] = [
            splitline
            for splitline in "".join(capsys.readouterr()).splitlines()
            if "python -m" in splitline
        ]

    for line in COMMANDS:
        run(line)
    (tmp_path / "docllm-data" / "bus.sqlite").unlink()
    for line in WITHOUT_A_BUS:
        run(line)
    agent.main(config)
    suggestions["agent"] = [
        splitline for splitline in capsys.readouterr().err.splitlines() if "python -m" in splitline
    ]

    assert [line for line, suggested in suggestions.items() if not suggested] == []
    assert {
        " --config my.toml" in suggestion for lines in suggestions.values() for suggestion in lines
    } == {named}


def test_a_log_line_names_the_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log line names the file too, for example about a route that waits for a person."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    configure_logging("INFO", 2, "my.toml")

    logging.getLogger("agent.any").warning("run: %s", "python -m agent resume fast --group g")

    assert (
        "[2] agent.any: run: python -m agent resume --config my.toml fast --group g\n"
        in capsys.readouterr().err
    )
