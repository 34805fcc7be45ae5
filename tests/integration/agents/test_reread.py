"""Agents that run read their settings again: a change is used whole, or named and ignored."""

import os
import signal
from pathlib import Path
from typing import Any

from tests.integration.support.deployment import Deployment

PARKED = "[agent]\npark_probe_s = 3600\n"
USED = "the changed settings are in use"


def replaced(path: Path, text: str) -> None:
    """Replace a file in one step, as careful programs do."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


def digests(deployment: Deployment) -> list[str]:
    """Return the settings' digest of each agent that works."""
    agents = deployment.status()["agents"]
    return [agent["report"]["settings"] for agent in agents if agent["report"]]


def test_a_corrected_key_opens_its_route_by_itself(embedded: Deployment) -> None:
    """Nobody restarts or resumes anything, and no probe is due for an hour."""
    llm = embedded.llm("--latency", "0.02", "--faults", "401=1")
    embedded.load(20)
    file = embedded.folder / "docllm.toml"
    file.write_text(f"{PARKED}[llm]\napi_key = 'wrong'\n")
    agent = embedded.agent("--until-done")
    embedded.until(lambda: "default is parked" in agent.err, "the agent to park its route")
    llm.dial()

    replaced(file, f"{PARKED}[llm]\napi_key = 'right'\n")

    assert agent.wait() == 0, agent.tail()
    assert f"{USED}: llm.api_key" in agent.err
    assert "route default has another account and is tried again" in agent.err
    assert {task.attempt for task in embedded.ledger.tasks()} == {0}
    assert embedded.ledger.counts()["succeeded"] == 20
    assert "wrong" not in agent.err
    assert "right" not in agent.err


def test_a_changed_mount_is_used_and_a_bad_one_is_named(embedded: Deployment) -> None:
    """Kubernetes swaps a link to the folder of the settings; their faults show in `status`."""
    embedded.llm("--latency", "0.02")
    mount = embedded.folder / "mount"
    mount.mkdir()
    file, link = mount / "docllm.toml", mount / "..data"
    file.symlink_to("..data/docllm.toml")

    def swap(number: int, text: str) -> None:
        folder = mount / f"..{number}"
        folder.mkdir()
        (folder / "docllm.toml").write_text(text)
        (mount / "next").symlink_to(folder.name)
        os.replace(mount / "next", link)  # noqa: PTH105 - the link itself, not what it names

    swap(1, "[types.note]\n")
    agent = embedded.agent("--config", "mount/docllm.toml")
    embedded.until(lambda: digests(embedded), "the agent's first report")
    (before,) = digests(embedded)
    lines = [{"id": "a", "type": "memo", "prompt": "Write."}]
    embedded.producer("load", str(embedded.write_lines(lines)), "--allow-type", "memo")
    embedded.until(
        lambda: any("tasks of type memo wait" in why for why in embedded.status()["reasons"]),
        "the task to wait for its type",
    )

    swap(2, "[types.note]\n[types.memo\n")
    embedded.until(
        lambda: any(
            "the changed settings are not used: " in why and "is not TOML" in why
            for why in embedded.status()["reasons"]
        ),
        "status to name the fault",
    )
    swap(3, "[types.memo]\n[agent]\nslots = 3\n")
    embedded.until(
        lambda: (
            "not used and the previous ones stay in use: agent.slots cannot change" in agent.err
        ),
        "the agent to name what needs a restart",
    )
    assert digests(embedded) == [before]
    swap(4, "[types.memo]\n")

    embedded.until_settled(1)  # the waiting task is called up
    embedded.until(
        lambda: (
            digests(embedded) not in ([], [before])
            and not any("not used" in why for why in embedded.status()["reasons"])
        ),
        "the new settings in the report",
    )
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0, agent.tail()


def test_a_route_that_an_agent_gains_calls_up_its_tasks(embedded: Deployment) -> None:
    """Its tasks run at once, although their tier lasts an hour; `status` forgets the refusal."""
    embedded.use_tiers("1h")
    embedded.llm("--latency", "0.02")
    fast = "[routes.fast]\nmodel = 'quick'\n"
    (embedded.folder / "docllm.toml").write_text(fast)
    file = embedded.folder / "agent.toml"
    file.write_text("")
    agent = embedded.agent("--config", "agent.toml")
    embedded.until(lambda: digests(embedded), "the agent's first report")
    lines: list[dict[str, Any]] = [
        {"id": "a", "prompt": "Write.", "route": "fast"},
        {"id": "b", "prompt": "Write.", "routes_allowed": ["fast"], "model": "quick"},
    ]
    embedded.producer("load", str(embedded.write_lines(lines)))
    embedded.until(
        lambda: len([why for why in embedded.status()["reasons"] if "of route" in why]) == 2,
        "the tasks to wait for a route",
    )

    replaced(file, fast)
    agent.signal(signal.SIGHUP)

    embedded.until_settled(2)
    embedded.until(
        lambda: not any("of route" in why for why in embedded.status()["reasons"]),
        "status to forget the refusal",
    )
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0, agent.tail()


def test_a_signal_makes_all_processes_read_their_settings(embedded: Deployment) -> None:
    """The parent passes SIGHUP on; every agent then has the same new settings."""
    embedded.llm("--latency", "0.02")
    file = embedded.folder / "docllm.toml"
    file.write_text("[types.note]\n")
    agent = embedded.agent("--processes", "2")
    embedded.until(lambda: len(digests(embedded)) == 2, "the reports of both agents")
    before = digests(embedded)

    replaced(file, "[types.memo]\n")
    agent.signal(signal.SIGHUP)

    embedded.until(lambda: agent.err.count(f"{USED}: types.memo, types.note") == 2, "both agents")
    assert "the settings are read again by 2 agents" in agent.err
    embedded.until(
        lambda: set(digests(embedded)).isdisjoint(before) and len(set(digests(embedded))) == 1,
        "the same new digest in both reports",
    )
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0, agent.tail()
