"""Of many tasks one kills its agent, which its parent starts again: that task alone is dead.

Two agents are lost; then the task runs in a process of its own.
"""

import time

from schemas.task.states import Status
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment

TASKS, POISON = 20, "t7"
SETTINGS = """
[types.document]
handler = "poison:handle"
"""
HANDLER = """
import asyncio, os

async def handle(context):
    if context.task.key == "{poison}":
        await asyncio.sleep(0.1)
        os._exit(0)
    await asyncio.sleep(0.3)
    return "fine"
"""


def test_a_poison_task_takes_no_other_with_it(embedded: Deployment) -> None:
    """The tasks that were lost beside it run again, and their charged losses are taken back."""
    embedded.llm("--latency", "0")
    embedded.load(TASKS)
    (embedded.folder / "poison.py").write_text(HANDLER.format(poison=POISON))
    (embedded.folder / "docllm.toml").write_text(SETTINGS)
    began_s = time.monotonic()

    done = embedded.run(
        "agent",
        "--group",
        embedded.group,
        "--processes",
        "2",
        "--slots",
        "4",
        "--until-done",
    )

    print(f"{time.monotonic() - began_s:.1f} s")  # noqa: T201 - a figure
    assert done.code == 0, done
    dead = {task.name for task in embedded.ledger.tasks() if task.status == Status.DEAD}
    assert dead == {f"tasks/{POISON}"}, done.err
    (letter,) = embedded.ledger.dead_letters()
    assert letter.error_class == "WORKER_LOST"
    assert letter.error_text == (
        "2 agents were lost while they worked on it; "
        "then its process ended with exit code 0; a handler returns or raises"
    )
    assert embedded.ledger.counts()["succeeded"] == TASKS - 1
    assert done.err.count("while it still had work") == 2
    assert checker.not_ended_once(embedded.evidence()) == []
