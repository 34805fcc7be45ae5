"""A group whose agents have different settings, as in a rolling change of them."""

from pathlib import Path
from typing import Any

import orjson

from docllm.schemas.task.task_types import BUILT_IN
from tests.integration.support.deployment import BATCH, Deployment
from tests.integration.support.installations import repeated_on_embedded
from tests.integration.support.programs import Program

MODULE = """
from pathlib import Path


async def {name}(context):
    return "{name}"


def note(context, outcome):
    with Path(__file__).with_name("hooks.log").open("a") as log:
        print(context.task.key, file=log, flush=True)
"""
NEW = """
[types.memo]
slots = 4
prompt = "New: {document}"
on_success = "reading:note"

[types.invoice]
handler = "reading:read"
"""
OLD = """
[types.memo]
slots = 1
prompt = "Old: {document}"

[types.letter]
handler = "writing:write"
"""
WORDS = ("new", "old")
COUNT = 8  # tasks of each type


def load(deployment: Deployment) -> None:
    lines = [
        {"id": f"{kind}{number}", "type": kind, "input": {"text": f"{kind} {number}."}}
        for number in range(COUNT)
        for kind in ("memo", "invoice", "letter")
    ]
    allowed = [word for kind in ("memo", "invoice", "letter") for word in ("--allow-type", kind)]
    deployment.producer("load", str(deployment.write_lines(lines)), *allowed)


def start(deployment: Deployment) -> tuple[Path, list[Program]]:
    """Start an agent with each of the two files; return the older one's file, and the agents."""
    folder = deployment.folder
    for module, name in (("reading", "read"), ("writing", "write")):
        (folder / f"{module}.py").write_text(MODULE.format(name=name))
    for word, text in zip(WORDS, (NEW, OLD), strict=True):
        (folder / f"{word}.toml").write_text(text)
    agents = [deployment.agent("--config", f"{word}.toml") for word in WORDS]
    return folder / "old.toml", agents


def reports(deployment: Deployment) -> list[dict[str, Any]]:
    agents = deployment.status()["agents"]
    return [agent["report"] for agent in agents if agent["report"]]


def differing(deployment: Deployment) -> bool:
    """Return whether `status` tells a person that an agent's settings differ."""
    return "has other settings than" in deployment.producer("status")


@repeated_on_embedded
def test_each_agent_goes_by_its_own_settings(deployment: Deployment) -> None:
    """Every task ends once, by an agent that knows its type, and status shows the difference."""
    llm = deployment.llm("--latency", "0.3")
    deployment.use_tiers("1s", "2s")
    old, agents = start(deployment)
    deployment.until(lambda: len(reports(deployment)) == 2, "both reports")
    own = [sorted(set(report["types"]) - BUILT_IN) for report in reports(deployment)]
    assert sorted(own) == [["invoice", "memo"], ["letter", "memo"]]
    assert len({report["settings"] for report in reports(deployment)}) == 2

    load(deployment)

    assert differing(deployment)
    deployment.until_settled(3 * COUNT)
    lines = list(map(orjson.loads, deployment.producer("export", "--batch", BATCH).splitlines()))
    results = {line["id"]: line["result"] for line in lines}
    assert {results[f"invoice{number}"] for number in range(COUNT)} == {"read"}
    assert {results[f"letter{number}"] for number in range(COUNT)} == {"write"}
    calls = [call.name for call in llm.calls()]
    assert sorted(name.partition("#")[0] for name in calls) == sorted(
        f"{BATCH}/memo{number}" for number in range(COUNT)
    )
    assert {task.attempt for task in deployment.ledger.tasks()} == {0}
    hooked = deployment.folder / "hooks.log"
    deployment.until(hooked.exists, "the new agent's hooks of memos")
    assert all(key.startswith("memo") for key in hooked.read_text().split())

    old.write_text(NEW)

    deployment.until(
        lambda: len({report["settings"] for report in reports(deployment)}) == 1,
        "the older settings to be replaced",
    )
    deployment.until(lambda: not differing(deployment), "status to see no difference")
    assert all(agent.running for agent in agents)
