"""A handler that blocks its agent's event loop is named, in the log and in `status`."""

import os
import re
import signal
from typing import Any

import pytest

from tests.integration.support.deployment import BATCH, Deployment
from tests.integration.support.programs import pause

SETTINGS = """
[types.invoice]
handler = "invoices:extract"
"""
# The handler blocks until the test lets it go on.
MODULE = """
import asyncio, pathlib, time

free = pathlib.Path("free")


def wait():
    while not free.exists():
        time.sleep(0.1)


def compute():
    while not free.exists():
        sum(range(10_000))


async def part(block):
    await asyncio.sleep(0)
    block()


async def extract(context):
    key = context.task.key
    if key == "sleeper":
        wait()
    elif key == "computer":
        compute()
    elif key == "parent":
        await asyncio.gather(part(wait))
    return "fine"
"""
BLOCKING = {"sleeper": "wait", "computer": "compute", "parent": "wait"}


def configured(deployment: Deployment, key: str) -> None:
    deployment.llm("--latency", "0")
    (deployment.folder / "invoices.py").write_text(MODULE)
    (deployment.folder / "docllm.toml").write_text(SETTINGS)
    lines = [{"id": name, "type": "invoice", "input": {"text": "x"}} for name in ("good", key)]
    deployment.producer("load", str(deployment.write_lines(lines)))


def blocks(deployment: Deployment) -> list[tuple[str, dict[str, Any]]]:
    """Return what `status` says of blocked agents, in words and as data."""
    status = deployment.status()
    reports = [(agent["notice"], agent["report"]) for agent in status["agents"]]
    return [
        (notice, report["blocked_by"])
        for notice, report in reports
        if report is not None and report["blocked_by"] is not None
    ]


@pytest.mark.parametrize("key", BLOCKING)
def test_a_blocking_handler_is_named(embedded: Deployment, key: str) -> None:
    """A handler that sleeps or computes, or a part of it that does, is named with its task."""
    configured(embedded, key)
    agent = embedded.agent("--until-done")

    embedded.until(lambda: blocks(embedded), "status names the task")
    notice, block = blocks(embedded)[0]
    (embedded.folder / "free").touch()

    assert agent.wait() == 0
    named = (block["batch"], block["key"], block["type"], block["place"].partition(":")[0])
    assert named == (BATCH, key, "invoice", "invoices.py")
    who = f"by task {key} of batch {BATCH}, type invoice, at invoices.py:"
    assert who in notice
    log = agent.err
    assert re.search(rf"the event loop has been blocked for \d+ s {re.escape(who)}", log)
    assert f", in {BLOCKING[key]}\n" in log.partition(who)[2]
    assert "the event loop runs again; it was blocked for " in log
    assert embedded.ledger.counts()["succeeded"] == 2


def test_a_blocking_handler_is_named_in_a_child_process(on_kafka: Deployment) -> None:
    """Each agent under `--processes` watches its own loop."""
    configured(on_kafka, "sleeper")
    parent = on_kafka.agent("--until-done", "--processes", "2")

    on_kafka.until(lambda: blocks(on_kafka), "status names the task")
    (on_kafka.folder / "free").touch()

    assert parent.wait() == 0
    assert f"by task sleeper of batch {BATCH}, type invoice, at invoices.py:" in parent.err


def test_an_agent_that_was_stopped_blames_no_handler(embedded: Deployment) -> None:
    """A process that the system stops for a while is not blocked by its code."""
    embedded.llm("--latency", "0.2")
    embedded.load(200)
    agent = embedded.agent("--until-done", "--slots", "4")
    embedded.until_settled(5)

    os.kill(agent.pid, signal.SIGSTOP)
    pause(6)
    os.kill(agent.pid, signal.SIGCONT)

    assert agent.wait() == 0
    assert "event loop" not in agent.err
