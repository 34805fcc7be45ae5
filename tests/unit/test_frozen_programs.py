"""Agents and commands are ended from outside the interpreter when no Python code runs in them."""

import argparse
import signal
from pathlib import Path

import pytest

from docllm.agent.cli import main, parser
from docllm.producer.cli.running import run


def watched() -> bool:
    """Return whether the kernel's timer runs."""
    return signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0


@pytest.mark.parametrize("command", ["run", "reaper"])
def test_an_agent_is_watched(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[bool] = []

    async def work(_config: object, _options: object) -> bool:
        seen.append(watched())
        return False

    for name in ("_run", "_run_repair_agent"):
        monkeypatch.setattr(main, name, work)
    monkeypatch.setattr(main, "configure_logging", lambda *_: None)
    monkeypatch.chdir(tmp_path)

    assert parser.main([command] * (command == "reaper")) == 0
    assert (seen, watched()) == ([True], False)


def test_the_parent_of_agents_starts_no_thread(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It starts processes at any time, and runs no code but its own."""
    seen: list[bool] = []

    def supervise(*_: object) -> int:
        seen.append(watched())
        return 0

    monkeypatch.setattr(main, "_supervise", supervise)
    monkeypatch.setattr(main, "configure_logging", lambda *_: None)
    monkeypatch.chdir(tmp_path)

    assert parser.main(["--processes", "2"]) == 0
    assert seen == [False]


def test_a_command_is_watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def work(_config: object, _options: object) -> int:
        return 7 if watched() else 0

    monkeypatch.chdir(tmp_path)

    assert run(argparse.Namespace(config=None, wait=0, run=work)) == 7
    assert not watched()
