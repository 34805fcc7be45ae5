"""A repair agent in `status`, and the files it leaves open."""

import asyncio
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from docllm.agent import app
from docllm.agent.app import lifecycle
from docllm.agent.process.child_executor import ChildExecutor
from docllm.agent.wiring.retention import make_retention_loops
from docllm.producer.app import opened
from docllm.producer.ledger.status import group_status
from docllm.producer.ledger.status.group_status import GroupStatus
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.sources import load_config


def test_a_running_repair_agent_is_recognized(tmp_path: Path) -> None:
    """A running repair agent is recognized: its heartbeat is an agent's, but it takes no tasks.

    Without another agent nothing would run. It leaves no file open.
    """

    async def seen() -> GroupStatus:
        config = load_config(flags={}, environ={}, cwd=tmp_path)
        async with opened(config, "g") as parts, app.registered_repair_agent(parts) as repair_agent:
            found = await parts.transactions.read(group_status.read_group, "g")
            await repair_agent.membership.leave()
        return found

    (repair_agent,) = asyncio.run(seen()).agents

    assert (repair_agent.state, repair_agent.works) == ("alive", False)
    assert repair_agent.name.endswith(" (reaper)")
    assert not [path for path in still_open() if path.is_relative_to(tmp_path)]


def test_a_repair_agent_that_cannot_be_built_is_not_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would look alive until it is declared lost. What it had opened is closed."""
    config = load_config(flags={}, environ={}, cwd=tmp_path)
    monkeypatch.setattr(
        lifecycle,
        "make_retention_loops",
        create_autospec(make_retention_loops, side_effect=ConfigError("no such archive")),
    )
    closed = []
    monkeypatch.setattr(ChildExecutor, "close", lambda _child: closed.append("child"))

    async def seen() -> GroupStatus:
        async with opened(config, "g") as parts:
            with pytest.raises(ConfigError, match="no such archive"):
                async with app.registered_repair_agent(parts):
                    pass
            return await parts.transactions.read(group_status.read_group, "g")

    assert asyncio.run(seen()).agents == ()
    assert closed == ["child"]
    assert not [path for path in still_open() if path.is_relative_to(tmp_path)]


def still_open() -> list[Path]:
    """Return the files that this process has open."""
    return [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
