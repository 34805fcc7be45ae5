"""What must not run twice does not, whatever ends its agent: `on_loss = "dead"`."""

import signal
from collections import Counter
from collections.abc import Callable

import pytest

from docllm.schemas.task.states import Status
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import Program

TASKS, SLOTS = 12, 4
SETTINGS = """
[types.document]
handler = "payments:pay"
on_loss = "dead"
{more}
"""
# Each run is one line in a file, and waits until the test lets it end.
HANDLER = """
import time
from pathlib import Path

def pay(context):
    with Path("payments").open("a") as payments:
        payments.write(f"{context.task.key} {context.losses}\\n")
    while not Path("open").exists():
        time.sleep(0.05)
    return "paid"
"""


def payments(deployment: Deployment) -> list[tuple[str, ...]]:
    """Return the key of each run, and how many agents were lost over its task before."""
    path = deployment.folder / "payments"
    return [tuple(line.split()) for line in path.read_text().splitlines()] if path.exists() else []


def of_status(deployment: Deployment, status: Status) -> set[str]:
    return {task.name for task in deployment.ledger.tasks() if task.status == status}


def start(deployment: Deployment, settings: str) -> Program:
    """Start an agent with these settings."""
    deployment.llm("--latency", "0")
    (deployment.folder / "payments.py").write_text(HANDLER)
    (deployment.folder / "docllm.toml").write_text(settings)
    return deployment.agent("--slots", str(SLOTS))


def begin(deployment: Deployment, more: str = "") -> set[str]:
    """Load tasks, and let an agent begin as many as it has slots; return their names."""
    deployment.load(TASKS)
    start(deployment, SETTINGS.format(more=more))
    return begun(deployment)


def begun(deployment: Deployment) -> set[str]:
    """Wait until an agent has begun as many tasks as it has slots; return their names."""
    deployment.until(lambda: len(payments(deployment)) == SLOTS, "runs in all slots")
    return {f"tasks/{key}" for key, _ in payments(deployment)}


def finish(deployment: Deployment, cut_off: set[str]) -> None:
    """Let all other runs end, and check that no task ran twice."""
    (deployment.folder / "open").touch()
    deployment.until_done("--slots", str(SLOTS))
    runs = Counter(key for key, _ in payments(deployment))
    assert set(runs.values()) == {1}
    assert len(runs) == TASKS
    assert of_status(deployment, Status.DEAD) == cut_off
    assert len(of_status(deployment, Status.SUCCEEDED)) == TASKS - SLOTS
    assert {row.error_class for row in deployment.ledger.dead_letters()} == {"WORKER_LOST"}


@pytest.mark.parametrize("run", ["agent", "process"])
def test_a_task_whose_agent_is_killed_runs_once(deployment: Deployment, run: str) -> None:
    """A repair agent that knows none of the group's types ends it; a person may run it again."""
    cut_off = begin(deployment, f'run = "{run}"')
    (deployment.folder / "docllm.toml").rename(deployment.folder / "kept.toml")
    assert deployment.kill(deployment.agents[0])
    reaper = deployment.start("agent", "reaper", "--group", deployment.group)

    deployment.until(lambda: of_status(deployment, Status.DEAD) == cut_off, "dead tasks")
    reaper.signal(signal.SIGTERM)
    assert reaper.wait() == 0
    (deployment.folder / "kept.toml").rename(deployment.folder / "docllm.toml")
    finish(deployment, cut_off)

    key = min(cut_off).partition("/")[2]
    shown = deployment.producer("show", key)
    assert "it may have finished, so it does not run again" in shown
    assert "cut off 1 time by the end of its agent" in shown
    assert checker.not_ended_once(deployment.evidence()) == []
    deployment.producer("replay", "--id", key, "--yes")
    deployment.until_done()
    assert payments(deployment)[TASKS:] == [(key, "1")]


def test_a_running_agent_learns_that_its_tasks_must_not_run_twice(embedded: Deployment) -> None:
    """The group knows it before the agent claims a task under the changed settings."""
    settings = SETTINGS.format(more="")
    agent = start(embedded, settings.replace('"dead"', '"again"'))
    embedded.until(lambda: embedded.status()["agents"], "the agent")
    (embedded.folder / "next.toml").write_text(settings)
    (embedded.folder / "next.toml").rename(embedded.folder / "docllm.toml")
    agent.signal(signal.SIGHUP)
    embedded.until(lambda: "the changed settings are in use: types" in agent.err, "the settings")
    embedded.load(TASKS)
    cut_off = begun(embedded)

    assert embedded.kill(agent)

    finish(embedded, cut_off)


@pytest.mark.parametrize("end", ["stop", "hurry"])
def test_a_task_whose_agent_stops_runs_once(embedded: Deployment, end: str) -> None:
    """A drain gives it the time of `drain_timeout_s`; a second signal gives it none."""
    cut_off = begin(embedded, "\n[agent]\ndrain_timeout_s = " + ("1" if end == "stop" else "60"))
    agent = embedded.agents[0]
    agent.signal(signal.SIGTERM)
    if end == "hurry":
        embedded.until(lambda: "draining" in agent.err, "a drain")
        agent.signal(signal.SIGTERM)
    agent.wait()

    finish(embedded, cut_off)


def test_a_task_whose_agent_drains_in_time_is_paid(
    embedded: Deployment, settings: Callable[[Deployment, str], None]
) -> None:
    """Its run ends by itself."""
    begin(embedded)
    embedded.agents[0].signal(signal.SIGTERM)
    (embedded.folder / "open").touch()
    embedded.agents[0].wait()

    assert of_status(embedded, Status.DEAD) == set()
    settings(embedded, SETTINGS.format(more=""))
    embedded.until_done("--slots", str(SLOTS))
    assert len(of_status(embedded, Status.SUCCEEDED)) == TASKS
    assert len(payments(embedded)) == TASKS
