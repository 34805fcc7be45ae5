"""Of many tasks one kills its agent, which its parent starts again: that task alone is dead.

Two agents are lost; then the task runs in a process of its own.
"""

import time

import pytest

from docllm.schemas.runtime.interpreter_watchdog import FROZEN
from docllm.schemas.task.states import Status
from tests.integration.support import checker
from tests.integration.support.deployment import Deployment

TASKS, POISON = 20, "t7"
SETTINGS = """
[types.document]
handler = "poison:handle"
"""
HANDLER = """
import asyncio, os, re, signal

async def handle(context):
    if context.task.key == "{poison}":
        await asyncio.sleep(0.1)
        {dies}
    await asyncio.sleep(0.3)
    return "fine"
"""
# The expression holds the interpreter's lock for years, of which the agent would bear a minute.
BACKTRACKS = r'signal.setitimer(signal.ITIMER_VIRTUAL, 1); re.match(r"(a+)+$", "a" * 60 + "b")'
FROZE = "was ended: no Python code ran in it for 60 s of processor time"


@pytest.mark.parametrize(
    ("dies", "agents_end", "process_ended"),
    [
        (
            "os._exit(0)",
            "ended with 0 while",
            "ended with exit code 0; a handler returns or raises",
        ),
        (BACKTRACKS, f"ended with {FROZEN}, because", FROZE),
    ],
    ids=["exits", "never_returns"],
)
def test_a_poison_task_takes_no_other_with_it(
    embedded: Deployment, dies: str, agents_end: str, process_ended: str
) -> None:
    """The tasks that were lost beside it run again, and their charged losses are taken back."""
    embedded.llm("--latency", "0")
    embedded.load(TASKS)
    (embedded.folder / "poison.py").write_text(HANDLER.format(poison=POISON, dies=dies))
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
        f"2 agents were lost while they worked on it; then its process {process_ended}"
    )
    assert embedded.ledger.counts()["succeeded"] == TASKS - 1
    assert done.err.count(agents_end) == 2
    assert checker.not_ended_once(embedded.evidence()) == []
