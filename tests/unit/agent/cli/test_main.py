"""The agent's command line."""

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from docllm.agent.cli import main
from docllm.agent.cli.parser import run_parser
from docllm.agent.process import supervisor
from docllm.schemas.settings.config import Config


@pytest.mark.parametrize(
    "line",
    [
        "--processes 2 --rehearsal",
        "run --processes 2 --rehearsal",
        "--processes 2 --rehearsal -- run",
    ],
)
def test_arguments_added_by_the_parent_process_count(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arguments that a parent adds for its agents work after any user arguments.

    After a `--` nothing is an option: each agent refused its number, and all ended with 2.
    """
    parsed: list[argparse.Namespace] = []

    class Parent:
        def __init__(self, *, command: Callable[[int, int], Sequence[str]], **_: object) -> None:
            parsed.append(run_parser().parse_args(command(2, 9)[5:]))

        def run(self) -> int:
            return 0

    monkeypatch.setattr(supervisor, "Supervisor", Parent)
    options = run_parser().parse_args(["--rehearsal-url", "http://127.0.0.1:1/v1", *line.split()])

    assert main._supervise(Config(), options, line.split()) == 0
    assert [
        (arguments.child, arguments.rehearsal_url, arguments.command) for arguments in parsed
    ] == [(2, "http://127.0.0.1:1/v1", "run")]


ALLOW = """
import resource
from docllm.agent.cli.main import _allow_open_files as allow
print(allow(1500), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("-Sn 1024", "True 1756"),
        ("-Sn 1900", "True 1900"),
        ("-Sn 1024; ulimit -Hn 1200", "False 1200"),
    ],
)
def test_an_agent_has_the_open_files_that_its_slots_need(limits: str, expected: str) -> None:
    """An agent raises its limit of open files to what its slots need.

    Beyond some 900 slots, calls used to fail for lack of files. That stopped their route and used
    up attempts, though most machines allow more.
    """
    command = ["sh", "-c", f'ulimit {limits}; exec "$0" -c "$1"', sys.executable, ALLOW]

    done = subprocess.run(command, check=True, cwd=Path(__file__).parents[2], capture_output=True)

    assert done.stdout.decode().strip() == expected
