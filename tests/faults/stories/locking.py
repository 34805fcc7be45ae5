"""Deaths of agents whose handlers hold locks, or wait for them."""

from itertools import pairwise

from tests.faults.installation import Installation

TASKS = 12
SLOTS = ("--slots", "4")
MODULE = """
import asyncio
from pathlib import Path


async def book(context):
    async with context.lock("account") as held:
        with Path("log.txt").open("a") as log:
            log.write(f"{held.fence}\\n")
        await asyncio.sleep(0.05)
    return held.fence
"""


def locking(installation: Installation) -> None:
    """After a death with a lock, others hold it one after the other, each with a higher number."""
    deployment = installation.deployment
    (deployment.folder / "bookings.py").write_text(MODULE)
    with (deployment.folder / "docllm.toml").open("a") as toml:
        toml.write('[types.booking]\nhandler = "bookings:book"\n')
    deployment.llm("--latency", "0")
    keys = [f"b{number}" for number in range(TASKS)]
    lines = [{"id": key, "type": "booking", "input": {"text": "x"}} for key in keys]
    deployment.producer("load", str(deployment.write_lines(lines)))
    deployment.expect("tasks", keys)
    installation.crash_agent("lock.changed", *SLOTS, most=8)
    installation.crash_agent("lock.changed", *SLOTS, most=8)
    installation.recover()
    fences = [int(line) for line in (deployment.folder / "log.txt").read_text().splitlines()]
    assert len(fences) >= TASKS
    assert all(before < after for before, after in pairwise(fences))
