"""Deaths of an agent between the order of a hook, its lease, its run and what is written of it."""

from docllm.schemas.task.states import Status
from tests.faults.installation import Installation
from tests.integration.support.deployment import BATCH

TASKS = 30
SLOTS = ("--slots", "6")
MODULE = """
from pathlib import Path


async def note(context, outcome):
    with Path(__file__).with_name("hooks.log").open("a") as log:
        print(context.task.key, file=log, flush=True)
"""


def hooking(installation: Installation) -> None:
    """The hook of every task that succeeds runs, some of them twice, and none is left.

    A task that three of the deaths met is dead, as one that kills its agents.
    """
    deployment = installation.deployment
    (deployment.folder / "hooks_of_the_story.py").write_text(MODULE)
    with (deployment.folder / "docllm.toml").open("a") as toml:
        toml.write('[types.document]\non_success = "hooks_of_the_story:note"\n')
    deployment.llm("--latency", "0.1")
    deployment.load(TASKS)
    for point in ("hook.leased", "hook.ran", "hook.written"):
        installation.crash_agent(point, *SLOTS, most=2)
    installation.recover()
    keys = (deployment.folder / "hooks.log").read_text().splitlines()
    tasks = deployment.ledger.tasks()
    succeeded = {task.name.partition("/")[2] for task in tasks if task.status == Status.SUCCEEDED}
    assert set(keys) == succeeded
    assert len(succeeded) > TASKS / 2


ENDS = """
from pathlib import Path


def note(end):
    with Path(__file__).with_name("ends.log").open("a") as log:
        print(end.batch, end.round, end.counts["succeeded"], file=log, flush=True)
"""


def telling(installation: Installation) -> None:
    """The end of a batch is told once at least, whenever the agent dies that finds or tells it."""
    deployment = installation.deployment
    (deployment.folder / "ends_of_the_story.py").write_text(ENDS)
    with (deployment.folder / "docllm.toml").open("a") as toml:
        toml.write('[hooks]\non_batch_done = "ends_of_the_story:note"\n')
    deployment.llm("--latency", "0")
    deployment.load(TASKS)
    for point in ("hook.batch_ended", "hook.leased", "hook.batch_told", "hook.written"):
        installation.crash_agent(point, *SLOTS)
    installation.recover()
    told = set((deployment.folder / "ends.log").read_text().splitlines())
    assert told == {f"{BATCH} 1 {TASKS}"}
