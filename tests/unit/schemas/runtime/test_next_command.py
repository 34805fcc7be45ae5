"""A command in a message names the configuration file of the program that prints it."""

import logging
import sys
from pathlib import Path

import pytest

from docllm.agent.cli import parser as agent
from docllm.agent.reporting.telemetry import configure_logging
from docllm.producer import __main__ as producer
from docllm.producer.cli.parser import parser
from docllm.schemas.runtime import collector
from docllm.schemas.runtime.next_command import ACTIONS, as_called, with_config
from docllm.schemas.runtime.next_command import COMMANDS as COMMANDS_OF_ONE_WORD


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "see: docllm status --group g",
            "see: docllm status --config my.toml --group g",
        ),
        (
            "run: docllm topics apply",
            "run: docllm topics apply --config my.toml",
        ),
        (
            "docllm guard open BATCH",
            "docllm guard open --config my.toml BATCH",
        ),
        (
            "run `docllm topics apply`",
            "run `docllm topics apply --config my.toml`",
        ),
        (
            "docllm load /a b.jsonl",
            "docllm load --config my.toml /a b.jsonl",
        ),
        ("docllm agent --group g", "docllm agent --config my.toml --group g"),
        (
            "docllm agent resume fast --group g",
            "docllm agent resume --config my.toml fast --group g",
        ),
        ("docllm agent rehearsal-llm", "docllm agent rehearsal-llm"),
        ("docllm migrate --config other", "docllm migrate --config other"),
    ],
)
def test_a_command_names_the_file(text: str, wanted: str) -> None:
    """The option follows the words of the command; the rehearsal LLM has no such option."""
    assert with_config(text, "my.toml") == wanted
    assert with_config(text, None) == text


def test_a_file_is_quoted_for_the_shell() -> None:
    """The file name is quoted for the shell, because people copy the line."""
    assert (
        with_config("docllm migrate", "my files/d.toml")
        == "docllm migrate --config 'my files/d.toml'"
    )


@pytest.mark.parametrize("program", ["/lib/docllm/agent/__main__.py", "/lib/producer/__main__.py"])
def test_a_command_is_written_as_the_program_was_started(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that was started by its module names its commands so; `docllm` alone stays."""
    monkeypatch.setattr(sys, "argv", [program, "status"])
    text = "docllm load FILE && docllm agent resume a; docllm agents wait; docllm"

    assert with_config(text, None) == (
        "python -m producer load FILE && python -m agent resume a; docllm agents wait; docllm"
    )
    assert with_config("run: docllm migrate", "my.toml") == (
        "run: python -m producer migrate --config my.toml"
    )
    assert as_called("docllm") == "python -m producer"


@pytest.mark.parametrize("program", ["/usr/bin/docllm", "/lib/docllm/__main__.py"])
def test_the_one_command_names_itself(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that was started as `docllm` shows its commands as they are written."""
    monkeypatch.setattr(sys, "argv", [program, "status"])

    assert as_called("docllm load FILE; docllm agent") == "docllm load FILE; docllm agent"


def test_every_command_is_known() -> None:
    """The commands that are rewritten are those of the producer's parser."""
    (commands,) = parser()._command_actions()

    assert {*ACTIONS, *COMMANDS_OF_ONE_WORD} == set(commands.choices)


COMMANDS = (
    "export", "status", "load tasks.jsonl", "status", "status --json", "export --batch no",
    "status --batch no", "cancel --batch no", "cancel --id no", "show no",
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
            if "docllm " in splitline
        ]

    for line in COMMANDS:
        run(line)
    (tmp_path / "docllm-data" / "bus.sqlite").unlink()
    for line in WITHOUT_A_BUS:
        run(line)
    agent.main(config)
    suggestions["agent"] = [
        splitline for splitline in capsys.readouterr().err.splitlines() if "docllm " in splitline
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

    logging.getLogger("agent.any").warning("run: %s", "docllm agent resume fast --group g")

    assert (
        "[2] agent.any: run: docllm agent resume --config my.toml fast --group g\n"
        in capsys.readouterr().err
    )
