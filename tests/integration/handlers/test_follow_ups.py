"""Follow-ups in whole programs: made, run, counted, waited for, and refused."""

from typing import Any

import orjson

from tests.integration.support.deployment import BATCH, Deployment
from tests.integration.support.installations import repeated_on_embedded

MODULE = """
import asyncio


async def split(context):
    document = await context.document()
    for number, page in enumerate(document.split("|")):
        line = {"id": f"{context.task.key}/{number}", "type": "page", "metadata": {"page": page}}
        await context.follow(line)
    return {"pages": number + 1}


async def read(context):
    page = context.task.metadata["page"]
    messages = [{"role": "user", "content": page}]
    answer = await context.complete({"model": context.model, "messages": messages})
    line = {"id": f"{context.task.key}/sum", "type": "page.sum", "metadata": {"chars": len(page)}}
    await context.follow(line)
    return page


async def add(context):
    return context.task.metadata["chars"]


async def clash(context):
    await context.follow({"id": "a", "prompt": "something else"})


async def endless(context):
    depth = (context.task.metadata or {}).get("depth", 0)
    line = {"id": f"{context.task.key}+", "type": "endless", "metadata": {"depth": depth + 1}}
    await context.follow(line)
    return depth


async def misspelt(context):
    await context.follow({"id": "x", "promt": "Summarize."})
"""
SETTINGS = """
[retry]
tiers = ["1s"]
max_attempts = 1

[types.book]
handler = "stages:split"
[types.page]
handler = "stages:read"
[types."page.sum"]
handler = "stages:add"
[types.clash]
handler = "stages:clash"
[types.endless]
handler = "stages:endless"
[types.misspelt]
handler = "stages:misspelt"
"""


def configured(deployment: Deployment) -> None:
    deployment.llm("--latency", "0")
    (deployment.folder / "stages.py").write_text(MODULE)
    (deployment.folder / "docllm.toml").write_text(SETTINGS)
    if deployment.kafka:
        deployment.producer("topics", "apply")


def load(deployment: Deployment, *lines: dict[str, Any]) -> None:
    deployment.producer("load", str(deployment.write_lines(lines)))


def exported(deployment: Deployment) -> dict[str, dict[str, Any]]:
    lines = deployment.producer("export", "--batch", BATCH).splitlines()
    return {line["id"]: line for line in map(orjson.loads, lines)}


@repeated_on_embedded
def test_stages_follow_each_other_and_the_agent_stays_for_all(deployment: Deployment) -> None:
    """A book has pages, and each page has a sum: none of them was loaded."""
    configured(deployment)
    load(
        deployment,
        *({"id": name, "type": "book", "input": {"text": "one|two|three"}} for name in "ab"),
    )

    deployment.until_done()

    ended = exported(deployment)
    sums = {f"{book}/{page}/sum" for book in "ab" for page in range(3)}
    assert len(ended) == 2 + 6 + 6
    assert {line["status"] for line in ended.values()} == {"succeeded"}
    assert sorted(ended[name]["result"] for name in sums) == [3, 3, 3, 3, 5, 5]
    status = orjson.loads(deployment.producer("status", "--json"))
    (batch,) = status["batches"]
    assert (batch["counts"]["total"], batch["counts"]["succeeded"]) == (14, 14)


def test_what_cannot_be_ordered_is_the_parent_s_failure(embedded: Deployment) -> None:
    """A clash, a bad line and a chain without end: each says what is wrong and what to do."""
    configured(embedded)
    load(
        embedded,
        {"id": "a", "type": "page", "metadata": {"page": "one"}},
        {"id": "clash", "type": "clash"},
        {"id": "misspelt", "type": "misspelt"},
        {"id": "e", "type": "endless"},
    )

    embedded.until_done()

    ended = exported(embedded)
    errors = {key: line["error"] for key, line in ended.items() if line["status"] == "dead"}
    assert errors.keys() == {"clash", "misspelt", "e" + 10 * "+"}
    assert errors["clash"]["code"] == "FOLLOW_CLASH"
    assert "'a' is in batch" in errors["clash"]["message"]
    assert errors["misspelt"]["code"] == "HANDLER"
    assert "promt is not a known field; did you mean prompt?" in errors["misspelt"]["message"]
    assert "would have 11 ancestors" in errors["e" + 10 * "+"]["message"]
