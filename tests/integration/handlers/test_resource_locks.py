"""Locks of handlers across agents: one holder at a time, also after a holder was killed."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import select

from docllm.schemas.ledger.tables import lock_wait
from tests.integration.support.deployment import BATCH, Deployment
from tests.integration.support.installations import repeated_on_embedded

# A file is read, and written some time later. Two writers at once would lose one of their changes.
MODULE = """
import asyncio
from pathlib import Path

ACCOUNT, LOG = Path("account.txt"), Path("log.txt")


async def book(context):
    async with context.lock("account") as held:
        before = int(ACCOUNT.read_text())
        with LOG.open("a") as log:
            log.write(f"{held.fence} {context.task.key}\\n")
        if context.task.key == "slow" and not Path("slow").exists():
            Path("slow").touch()
            await asyncio.sleep(3600)
        await asyncio.sleep(0.02)
        held.check()
        ACCOUNT.write_text(str(before + 1))
    return {"fence": held.fence}
"""
SETTINGS = """
[types.booking]
handler = "bookings:book"
"""


def configured(deployment: Deployment) -> Path:
    (deployment.folder / "bookings.py").write_text(MODULE)
    (deployment.folder / "docllm.toml").write_text(SETTINGS)
    (deployment.folder / "account.txt").write_text("0")
    if deployment.kafka:
        deployment.producer("topics", "apply")
    return deployment.folder


def bookings(*keys: str) -> list[dict[str, Any]]:
    return [{"id": key, "type": "booking", "input": {"text": "x"}} for key in keys]


def fences(folder: Path) -> list[int]:
    return [int(line.split()[0]) for line in (folder / "log.txt").read_text().splitlines()]


@repeated_on_embedded
def test_agents_hold_a_lock_one_after_the_other(deployment: Deployment) -> None:
    """No change of what the lock protects is lost, and each holder has a higher number."""
    deployment.llm("--latency", "0")
    folder = configured(deployment)
    keys = [f"b{number}" for number in range(40)]
    deployment.producer("load", str(deployment.write_lines(bookings(*keys))))

    deployment.until_done(agents=2)

    assert (folder / "account.txt").read_text() == "40"
    assert all(before < after for before, after in pairwise(fences(folder)))
    exported = deployment.producer("export", "--batch", BATCH).splitlines()
    results = [orjson.loads(line)["result"]["fence"] for line in exported]
    assert sorted(results) == fences(folder)


@repeated_on_embedded
def test_the_lock_of_a_killed_agent_goes_to_those_who_wait(deployment: Deployment) -> None:
    """The lock stays taken until the agent was declared lost; its task runs again as any other."""
    deployment.llm("--latency", "0")
    folder = configured(deployment)
    deployment.producer("load", str(deployment.write_lines(bookings("slow"))))
    victim = deployment.agent()
    deployment.until((folder / "slow").exists, "the lock to be held")
    deployment.producer("load", str(deployment.write_lines(bookings("b1", "b2"), "more")))
    deployment.agent()
    waits = select(lock_wait.c.task_id).where(lock_wait.c.owner != 0)
    deployment.until(lambda: len(deployment.ledger._all(waits)) == 2, "two tasks to wait")

    deployment.until(lambda: deployment.kill(victim), "the victim to be killed")
    deployment.until_done(agents=1)

    assert (folder / "account.txt").read_text() == "3"
    assert len(fences(folder)) == 4
    assert all(before < after for before, after in pairwise(fences(folder)))
