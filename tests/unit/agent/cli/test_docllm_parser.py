"""The command `docllm`: its commands, its help and its errors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docllm.agent.cli.docllm_parser import OWN, docllm_parser

ROOT = Path(__file__).parents[4]
DOCLLM = [sys.executable, "-m", "docllm"]


def docllm(*words: str) -> "subprocess.CompletedProcess[str]":
    environ = os.environ | {"COLUMNS": "80"}
    return subprocess.run(
        [*DOCLLM, *words], check=False, cwd=ROOT, env=environ, capture_output=True, text=True
    )


def test_the_help_fits_one_screen() -> None:
    """The help has 40 lines of 80 columns at most, and names each command."""
    lines = docllm("--help").stdout.splitlines()

    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert [name for name in ("load", "agent", *OWN[:2]) if name not in " ".join(lines)] == []


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("stauts", "'stauts' is not a command; did you mean status?"),
        ("agnet --until-done", "'agnet' is not a command; did you mean agent?"),
        ("--gruop g status", "unknown option --gruop"),
        ("purge --batch b --keep dead", "unknown option --keep; a purge deletes all rows"),
        ("", "name a command: load, status, "),
        ("agent reap", "'reap' is not a command; did you mean reaper?"),
        ("status --jsn", "unknown option --jsn; did you mean --json?\nfor help: docllm status"),
        ("completion ksh", "'ksh' is not a choice; did you mean zsh?"),
    ],
)
def test_a_wrong_word_is_usage(line: str, error: str) -> None:
    """A wrong word is exit code 2, and the help is named in the form that was typed."""
    done = docllm(*line.split())

    assert done.returncode == 2
    assert error in done.stderr
    assert "for help: docllm" in done.stderr
    assert "python -m" not in done.stderr


def test_each_command_of_its_own_has_a_function() -> None:
    """The functions of `demo` and `completion` exist."""
    for line in (["demo"], ["completion", "zsh"]):
        assert callable(docllm_parser().parse_args(line).run.function())
