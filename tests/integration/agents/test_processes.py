"""`--processes N`: agents under one parent share the work, and a dead one is restarted.

The parent handles signals and exit codes.
"""

import os
import re
import signal

import pytest

from tests.integration.support import checker
from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import Program
from tests.servers.process import free_port

SLOTS = "10"


def children(parent: Program) -> list[int]:
    """Return the agents' processes that the parent has started so far, in order."""
    return [int(pid) for pid in re.findall(r"agent \d+ started, process (\d+)", parent.err)]


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def working(deployment: Deployment, *options: str) -> Program:
    """Return the parent of three agents, each of which has settled something."""
    parent = deployment.agent("--processes", "3", "--slots", SLOTS, *options)
    deployment.until(lambda: len(children(parent)) == 3, "three agents")
    deployment.until(
        lambda: all(map(deployment.ledger.settled_by, children(parent))), "all of them to work"
    )
    return parent


def test_killed_child_comes_back_and_the_work_is_done(deployment: Deployment) -> None:
    """A killed agent of three is replaced; the parent ends with 0 when all is done."""
    deployment.llm("--latency", "1.2")
    deployment.load(600)
    parent = working(deployment, "--until-done")

    victim = children(parent)[1]
    deployment.until(
        lambda: deployment.ledger.claims_of(victim) and deployment.kill_process(victim),
        "the victim to hold tasks",
    )

    assert parent.wait() == 0, parent.tail()
    run = deployment.evidence()
    assert len(children(parent)) == 4
    assert deployment.ledger.settled_by(children(parent)[3])
    assert "agent 2 was ended by SIGKILL" in parent.err
    assert all(f"[{number}] " in parent.err for number in (1, 2, 3))
    assert not any(map(runs, children(parent)))
    assert checker.violations(run) == []


def test_signal_drains_all(deployment: Deployment) -> None:
    """SIGTERM to the parent drains every agent: no claim is left, and no call is repeated.

    The exit code is 0.
    """
    deployment.llm("--latency", "1")
    deployment.load(300)
    parent = working(deployment)

    parent.signal(signal.SIGTERM)

    assert parent.wait() == 0, parent.tail()
    counts = deployment.ledger.counts()
    assert counts["processing"] == 0
    assert counts["pending"]
    assert all(row.stopped_at is not None for row in deployment.ledger.agents())
    deployment.until_done("--slots", "100")
    run = deployment.evidence()
    assert len(run.calls) == 300
    assert checker.violations(run) == []


def test_killed_parent_leaves_no_agent_behind(embedded: Deployment) -> None:
    """SIGKILL of the parent ends its agents; the next ones take over their tasks."""
    embedded.llm("--latency", "0.6")
    embedded.load(300)
    parent = working(embedded)

    parent.signal(signal.SIGKILL)

    embedded.until(lambda: not any(map(runs, children(parent))), "its agents to end")
    embedded.until_done("--slots", "100")
    assert checker.not_ended_once(embedded.evidence()) == []


def test_agents_share_one_rehearsal_llm(embedded: Deployment) -> None:
    """With --rehearsal the parent starts one server for all agents.

    A second one on its port would end with an error.
    """
    embedded.load(100)

    done = embedded.run(
        "agent",
        "--processes",
        "2",
        "--until-done",
        "--rehearsal",
        "--rehearsal-options",
        f"--port {free_port()}",
    )

    assert done.code == 0, done
    assert embedded.ledger.counts()["succeeded"] == 100


SETTINGS = """
[types.document]
handler = "mine:handle"
give_up = ["ValueError"]
"""


@pytest.mark.parametrize("options", [(), ("--processes", "2")])
def test_dead_tasks_are_exit_code_1_for_who_asks(
    embedded: Deployment, options: tuple[str, ...]
) -> None:
    """With --fail-on-dead, dead tasks are exit code 1, no agent is restarted for them.

    The command that shows them is named once.
    """
    embedded.llm("--latency", "0")
    (embedded.folder / "mine.py").write_text(
        "async def handle(context):\n    raise ValueError('x')\n"
    )
    (embedded.folder / "docllm.toml").write_text(SETTINGS)
    embedded.load(2)

    done = embedded.run(
        "agent", "--group", embedded.group, "--until-done", "--fail-on-dead", *options
    )
    again = embedded.run("agent", "--group", embedded.group, "--until-done", *options)

    assert done.code == 1, done
    assert "starts again" not in done.err
    assert f"more: docllm dead list --group {embedded.group}" in done.err
    assert f"error: tasks of group {embedded.group} are dead; --fail-on-dead" in done.err
    assert again.code == 0, again


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--processes", "0"], "whole number"),
        (["--processes", "many"], "whole number"),
        (["reaper", "--processes", "2"], "run `docllm agent reaper` without it"),
        (["reaper", "--slots", "2", "--until-done"], "without --slots and --until-done"),
        (["--processes", "2"], "no LLM is configured"),
        (
            ["--processes", "2", "--rehearsal", "--rehearsal-options", "--faults x=1"],
            "--rehearsal-options",
        ),
    ],
)
def test_an_error_of_all_agents_is_reported_once(
    embedded: Deployment, options: list[str], message: str
) -> None:
    """Usage and configuration errors are 2 before any agent is started."""
    done = embedded.run("agent", *options)

    assert done.code == 2
    assert done.err.count(message) == 1
    assert "started" not in done.err


def test_unprepared_ledger_ends_all(on_kafka: Deployment) -> None:
    """A state that a restart would not fix is the parent's exit code 4, at once."""
    on_kafka.llm()

    done = on_kafka.run("agent", "--group", "nobody", "--processes", "2")

    assert done.code == 4, done
    assert "topics apply" in done.err
