"""Options may stand before and after a command's arguments; impossible values are refused."""

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agent.cli import main
from agent.rehearsal import run
from producer.__main__ import _parser
from producer.cli import admin, from_topic, replay
from schemas.errors import ConfigError
from schemas.settings.config import Config

NOT_UTF8 = b"\xff".decode(errors="surrogateescape")  # as Python reads such an argument


@pytest.mark.parametrize(
    "line",
    [
        "guard open night --type invoice --route fast --group g",
        "guard open --type invoice --route fast --group g night",
        "guard open --group g --type invoice night --route fast",
    ],
)
def test_a_batchs_guards_are_named_in_any_order(line: str) -> None:
    """A batch's guards are selected with options in any order.

    `argparse` refuses an optional argument that follows an option, but the batch is required.
    """
    options = _parser().parse_args(line.split())

    assert (options.batch, options.type, options.route, options.group) == (
        "night",
        "invoice",
        "fast",
        "g",
    )


@pytest.mark.parametrize(
    "line",
    [
        f"cancel --id {NOT_UTF8}",
        f"cancel --batch {NOT_UTF8}",
        f"status --batch {NOT_UTF8}",
        f"status --group {NOT_UTF8}",
        "status --group a/b",
        f"export --batch {NOT_UTF8}",
        f"guard open {NOT_UTF8}",
        f"guard open b --type {NOT_UTF8}",
        f"guard open b --route {NOT_UTF8}",
        f"guard list {NOT_UTF8}",
        f"load --documents d --prompt {NOT_UTF8}",
        f"load --documents d --model {NOT_UTF8}",
        "cancel --batch=",
        "cancel --id a --batch=",
        "status --batch=",
        "export --batch=",
        "dead list --since=",
        "dead show a --batch=",
        "guard open b --type=",
        "replay --batch b --fingerprint=",
        "replay --from-topic=",
        "load - --limit 99999999999999999999999",
        "load - --limit 0",
        "replay --all --cap 99999999999999999999 --dry-run",
        f"replay --from-topic {NOT_UTF8}",
        "dead list --limit 1e3",
        "topics apply --partitions 99999999",
        "topics apply --replication-factor 99999999999",
    ],
)
def test_a_value_that_nothing_can_be_made_of_is_refused(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An impossible value is a usage error with code 2 that names the argument.

    Such values used to end in a traceback, or in a command that did nothing and returned 0.
    """
    with pytest.raises(SystemExit) as ended:
        _parser().parse_args(line.split())

    assert ended.value.code == 2
    assert "argument " in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--rate", "5/s"), ("--cap", "3")])
@pytest.mark.parametrize(
    "mode", [("--resume",), ("--list",), ("--from-topic",), ("--from-topic", "letters")]
)
def test_a_rate_that_would_not_be_kept_is_refused(
    mode: tuple[str, ...], option: tuple[str, ...]
) -> None:
    """A rate that a replay would ignore is refused before anything is read.

    A resumed replay uses its stored rate, and dead letters are loaded without a rate limit.
    """
    options = _parser().parse_args(["replay", *mode, *option])

    with pytest.raises(
        ConfigError, match=rf"^{mode[0]} takes no other options, because .*; leave out {option[0]}$"
    ):
        asyncio.run(replay.replay(Config(), options))


def test_letters_are_loaded_by_their_disposition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead letters can be loaded by disposition, which is how quarantined records are selected.

    All other selections need a ledger, which is lost.
    """
    taken: list[list[str]] = []

    async def load(_: Config, options: argparse.Namespace) -> int:
        taken.append(options.disposition)
        return 0

    monkeypatch.setattr(from_topic, "load", load)
    line = ["replay", "--from-topic", "--disposition", "rejected"]
    asyncio.run(replay.replay(Config(), _parser().parse_args(line)))
    assert taken == [["rejected"]]

    for other in (["--batch", "b"], ["--all"], ["--resume"]):
        with pytest.raises(ConfigError, match="takes no other options"):
            asyncio.run(replay.replay(Config(), _parser().parse_args([*line, *other])))


def test_a_port_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """An invalid port is refused. The rehearsal LLM used to listen on what was left of it."""
    with pytest.raises(SystemExit) as ended:
        run(["--port", "99999"])

    assert ended.value.code == 2
    assert "'99999' is not a port" in capsys.readouterr().err


def test_embedded_topics_have_few_partitions(tmp_path: Path) -> None:
    """Embedded topics have few partitions, because every agent looks at all in every turn."""
    options = _parser().parse_args(["topics", "apply", "--partitions", "5000"])

    with pytest.raises(ConfigError, match="--partitions 5000: embedded topics have 1000 at most"):
        asyncio.run(admin.topics(Config(data_dir=tmp_path), options))


@pytest.mark.parametrize(
    "line",
    [
        "--processes 2 --rehearsal",
        "run --processes 2 --rehearsal",
        "--processes 2 --rehearsal -- run",
    ],
)
def test_what_a_parent_adds_for_its_agents_counts_after_any_arguments(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arguments that a parent adds for its agents work after any user arguments.

    After a `--` nothing is an option: each agent refused its number, and all ended with 2.
    """
    found: list[argparse.Namespace] = []

    class Parent:
        def __init__(self, *, command: Callable[[int, int], Sequence[str]], **_: object) -> None:
            found.append(main._parser().parse_args(command(2, 9)[4:]))

        def run(self) -> int:
            return 0

    monkeypatch.setattr(main, "Supervisor", Parent)
    options = main._parser().parse_args(["--rehearsal-url", "http://127.0.0.1:1/v1", *line.split()])

    assert main._supervise(Config(), options, line.split()) == 0
    assert [(one.child, one.rehearsal_url, one.command) for one in found] == [
        (2, "http://127.0.0.1:1/v1", "run")
    ]


@pytest.mark.parametrize("command", ["resume", "rehearsal-llm"])
def test_a_command_that_stands_behind_an_option_is_told_its_place(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error for a command behind an option says where the command belongs.

    The error used to call the command unknown, though `--help` names it.
    """
    with pytest.raises(SystemExit, match="2"):
        main._parser().parse_args(["--group", "g", command])

    assert (
        f"{command} must come before all options: python -m agent {command} --help"
        in capsys.readouterr().err
    )


def test_a_command_that_is_none_is_told_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    """The error for an unknown command lists all commands."""
    with pytest.raises(SystemExit, match="2"):
        main._parser().parse_args(["reap"])

    assert (
        "'reap' is not a command; known are run, reaper, resume and rehearsal-llm"
        in capsys.readouterr().err
    )


ALLOW = """
import resource
from agent.cli.main import _allow_open_files as allow
print(allow(1500), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ("-Sn 1024", "True 1756"),
        ("-Sn 1900", "True 1900"),
        ("-Sn 1024; ulimit -Hn 1200", "False 1200"),
    ],
)
def test_an_agent_has_the_open_files_that_its_slots_need(limits: str, found: str) -> None:
    """An agent raises its limit of open files to what its slots need.

    Beyond some 900 slots, calls used to fail for lack of files. That stopped their route and used
    up attempts, though most machines allow more.
    """
    command = ["sh", "-c", f'ulimit {limits}; exec "$0" -c "$1"', sys.executable, ALLOW]

    done = subprocess.run(command, check=True, cwd=Path(__file__).parents[2], capture_output=True)

    assert done.stdout.decode().strip() == found
