"""Hooks of a person's own run after the ends of attempts, whatever happens to their agents."""

import signal
from collections import Counter
from contextlib import closing
from sqlite3 import connect

import orjson

from tests.integration.support.deployment import BATCH, Deployment
from tests.integration.support.installations import repeated_on_embedded
from tests.support import json_schemas

MODULE = """
import os
import time
from pathlib import Path

from docllm.agent.handlers import GiveUpError, TryAgainError

LOG = Path(__file__).with_name("hooks.log")


async def work(context):
    if context.task.text == "junk":
        raise GiveUpError("this is no invoice")
    if context.task.text == "later" and context.attempt == 1:
        raise TryAgainError("the archive is closed")
    return {"total": 7}


def note(kind, context, outcome):
    line = f"{kind} {context.task.key} {outcome.status} {outcome.attempts} {outcome.result}"
    with LOG.open("a") as log:
        print(line, outcome.error, sep="|", file=log, flush=True)


async def succeeded(context, outcome):
    messages = [{"role": "user", "content": "Tell them"}]
    await context.complete({"model": "of-hooks", "messages": messages})
    note("success", context, outcome)


def retried(context, outcome):
    note("retry", context, outcome)


def died(context, outcome):
    note("dead", context, outcome)


def slow(context, outcome):
    note("success", context, outcome)
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.05)


def broken(context, outcome):
    raise ValueError("the queue is full")
"""
SETTINGS = """
[retry]
tiers = ["1s"]

[types.invoice]
handler = "invoices:work"
on_success = "invoices:{success}"
on_retry = "invoices:retried"
on_dead = "invoices:died"
"""


def configured(deployment: Deployment, success: str = "succeeded") -> None:
    (deployment.folder / "invoices.py").write_text(MODULE)
    (deployment.folder / "docllm.toml").write_text(SETTINGS.format(success=success))
    if deployment.kafka:
        deployment.producer("topics", "apply")


def load(deployment: Deployment, *texts: str) -> None:
    lines = [{"id": text, "type": "invoice", "input": {"text": text}} for text in texts]
    deployment.producer("load", str(deployment.write_lines(lines)))


def noted(deployment: Deployment) -> list[str]:
    log = deployment.folder / "hooks.log"
    return sorted(log.read_text().splitlines()) if log.exists() else []


def test_hooks_run_after_the_ends_of_attempts(embedded: Deployment) -> None:
    """An agent that leaves when all is done has run them; what they pay is the task's cost."""
    llm = embedded.llm("--latency", "0")
    configured(embedded)
    load(embedded, "good", "later", "junk")

    embedded.until_done()

    assert noted(embedded) == [
        "dead junk dead 1 None|this is no invoice",
        "retry later retrying 1 None|the archive is closed",
        "success good succeeded 1 {'total': 7}|",
        "success later succeeded 2 {'total': 7}|",
    ]
    assert len(llm.calls()) == 2
    exported = embedded.producer("export", "--batch", BATCH).splitlines()
    tokens = {line["id"]: line["tokens_in"] for line in map(orjson.loads, exported)}
    assert tokens["good"] > 0
    assert tokens["junk"] == 0


def test_the_calls_of_a_hook_stay_within_the_routes_of_the_batch(embedded: Deployment) -> None:
    """The line of the task names no route, and its batch allows another one than its type's."""
    other, own = embedded.llm("--latency", "0"), embedded.llm("--latency", "0")
    configured(embedded)
    routes = f"""
        route = "other"
        [routes.other]
        base_url = "{other.url}"
        fallback = ["own"]
        [routes.own]
        base_url = "{own.url}"
    """
    with (embedded.folder / "docllm.toml").open("a") as file:
        file.write(routes)
    lines = [{"id": "good", "type": "invoice", "input": {"text": "good"}}]
    embedded.producer("load", str(embedded.write_lines(lines)), "--routes-allowed", "own")

    embedded.until_done()

    assert (other.calls(), len(own.calls())) == ([], 1)


def test_a_cancelled_task_has_its_hook(embedded: Deployment) -> None:
    """The task may never have begun; the agents have named their hooks before."""
    embedded.llm("--latency", "0")
    configured(embedded)
    load(embedded, "good")
    embedded.until_done()
    lines = [{"id": "never", "type": "invoice", "input": {"text": "x"}}]
    embedded.producer("load", str(embedded.write_lines(lines, "second")), "--batch", "second")
    embedded.producer("cancel", "--batch", "second")

    embedded.until_done()

    assert "dead never cancelled 0 None|" in noted(embedded)


@repeated_on_embedded
def test_a_killed_agents_hook_runs_on_another_one(deployment: Deployment) -> None:
    """The hook had begun, so it may run twice, but it is never lost."""
    deployment.llm("--latency", "0")
    configured(deployment, "slow")
    load(deployment, "good")
    agent = deployment.agent()
    deployment.until(lambda: noted(deployment), "the hook begins")
    agent.signal(signal.SIGKILL)
    agent.wait()
    (deployment.folder / "go").touch()

    deployment.until_done()

    assert Counter(noted(deployment)) == {"success good succeeded 1 {'total': 7}|": 2}


def test_a_hook_that_fails_leaves_its_task_alone(embedded: Deployment) -> None:
    """The agent leaves meanwhile and says so; the next one tries the hook again."""
    embedded.llm("--latency", "0")
    configured(embedded, "broken")
    load(embedded, "good")

    (agent,) = embedded.until_done()

    assert "handler of type invoice (on_success) failed" in agent.err
    assert "ValueError: the queue is full" in agent.err
    assert "1 hook on_success of type invoice not done (ValueError: the queue is full)" in agent.err
    (line,) = map(orjson.loads, embedded.producer("export", "--batch", BATCH).splitlines())
    assert line["status"] == "succeeded"


def test_a_hook_that_was_given_up_runs_again(embedded: Deployment) -> None:
    """A person repairs it and asks for it; scripts read the same of the command."""
    embedded.llm("--latency", "0")
    configured(embedded, "broken")
    load(embedded, "good")
    embedded.until_done()
    with closing(connect(embedded.folder / "docllm-data" / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("UPDATE hook SET state = 2")  # as after its fifth failure, an hour later
    assert "dead hooks --retry" in embedded.status()["reasons"][0]
    listed = embedded.producer("dead", "hooks")
    assert "1 hook on_success of type invoice: ValueError: the queue is full" in listed
    assert orjson.loads(embedded.producer("dead", "hooks", "--event", "dead", "--json")) == {
        "version": 1,
        "group": embedded.group,
        "hooks": [],
        "retried": 0,
    }
    configured(embedded, "succeeded")

    retried = orjson.loads(embedded.producer("dead", "hooks", "--retry", "--json"))

    assert json_schemas.faults("dead_hooks", retried) == []
    assert retried["retried"] == 1
    embedded.until_done()
    assert noted(embedded) == ["success good succeeded 1 {'total': 7}|"]
    assert "no hook" in embedded.producer("dead", "hooks", "--type", "invoice")


def test_a_hook_that_cannot_be_used_is_refused_at_the_start(embedded: Deployment) -> None:
    """The message names the setting and the form."""
    embedded.llm("--latency", "0")
    configured(embedded, "work")
    load(embedded, "good")

    done = embedded.run("agent", "--until-done")

    assert done.code == 2
    assert "types.invoice.on_success: invoices:work must take the context and the outcome" in (
        done.err
    )
