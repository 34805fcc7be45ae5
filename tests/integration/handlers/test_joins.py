"""Map over pages, then reduce, as separate tasks in whole programs, whoever is killed."""

import signal
from typing import Any

import orjson

from tests.integration.support.deployment import BATCH, Deployment
from tests.integration.support.installations import repeated_on_embedded

PAGES = 20
MODULE = f"""
import asyncio
from pathlib import Path


async def split(context):
    for number in range({PAGES}):
        line = {{"id": f"{{context.task.key}}/{{number}}", "type": "page"}}
        await context.follow(line | {{"metadata": {{"number": number}}}})
    for kind in ("sum", "again"):
        line = {{"id": f"{{context.task.key}}/{{kind}}", "type": kind}}
        await context.follow(line, after="children")


async def read(context):
    messages = [{{"role": "user", "content": context.task.key}}]
    await context.complete({{"model": context.model, "messages": messages}})
    if context.task.metadata["number"] == 7 and Path("bad").exists():
        raise ValueError("page 7 cannot be read")
    return context.task.metadata["number"]


async def add(context):
    ends = [child async for child in context.children()]
    assert [child.status for child in ends] == ["succeeded"] * {PAGES}, ends
    return {{"sum": sum(child.result for child in ends), "first": ends[0].id}}


def add_in_process(context):
    return sum(child.result for child in context.children())
"""
SETTINGS = """
[retry]
max_attempts = 1
[types.book]
handler = "pages:split"
[types.page]
handler = "pages:read"
[types.sum]
handler = "pages:add"
[types.again]
handler = "pages:add_in_process"
run = "process"
"""


def loaded(deployment: Deployment, *books: str, latency: str = "0") -> None:
    deployment.llm("--latency", latency)
    (deployment.folder / "pages.py").write_text(MODULE)
    (deployment.folder / "docllm.toml").write_text(SETTINGS)
    if deployment.kafka:
        deployment.producer("topics", "apply")
    lines = [{"id": book, "type": "book"} for book in books]
    deployment.producer("load", str(deployment.write_lines(lines)))


def exported(deployment: Deployment) -> dict[str, dict[str, Any]]:
    lines = deployment.producer("export", "--batch", BATCH).splitlines()
    return {line["id"]: line for line in map(orjson.loads, lines)}


@repeated_on_embedded
def test_pages_are_read_and_then_added_once_although_agents_are_killed(
    deployment: Deployment,
) -> None:
    """Each kill comes when some pages have ended, the last one when few are left."""
    loaded(deployment, "a", "b", latency="0.2")
    for ended in (2, 12, 30):
        agent = deployment.agent("--slots", "4")
        deployment.until_settled(ended)
        agent.signal(signal.SIGKILL)
        agent.wait()

    deployment.until_done(agents=2)

    ends = exported(deployment)
    assert len(ends) == 2 * (1 + PAGES + 2)
    assert {line["status"] for line in ends.values()} == {"succeeded"}
    total = sum(range(PAGES))
    for book in "ab":
        assert ends[f"{book}/sum"]["result"] == {"sum": total, "first": f"{book}/0"}
        assert ends[f"{book}/again"]["result"] == total
        assert ends[f"{book}/sum"]["finished_at"] >= max(
            ends[f"{book}/{number}"]["finished_at"] for number in range(PAGES)
        )


def test_a_dead_page_does_not_hold_the_agent_and_its_replay_runs_the_join(
    embedded: Deployment,
) -> None:
    """The agent ends, names the joins and counts them; after the replay they run."""
    loaded(embedded, "a")
    (embedded.folder / "bad").touch()

    agent = embedded.agent("--until-done", "--fail-on-dead")
    assert agent.wait(400) == 1
    assert "2 tasks wait for a replay of dead tasks that their parents ordered too" in agent.tail()
    assert exported(embedded)["a/sum"]["status"] == "pending"
    assert "'a/7' (dead)" in embedded.producer("show", "a/sum")

    waited = embedded.producer("wait", "--batch", BATCH, "--fail-on-dead", code=1)
    assert "2 wait for a replay of dead tasks" in waited

    (embedded.folder / "bad").unlink()
    embedded.producer("replay", "--yes", "--all")
    embedded.until_done("--fail-on-dead")

    assert exported(embedded)["a/again"]["result"] == sum(range(PAGES))
