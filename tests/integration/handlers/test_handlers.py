"""Handlers by type of task: found, run, retried, given up, or refused at the start."""

import signal
from typing import Any

import orjson

from tests.integration.support.deployment import BATCH, Deployment
from tests.integration.support.installations import repeated_on_embedded

MODULE = """
from docllm.agent.handlers import Context, GiveUpError, TryAgainError

tries = {}


async def extract(context):
    key = context.task.key
    tries[key] = tries.get(key, 0) + 1
    text = await context.document()
    if text == "junk":
        raise GiveUpError("this is no invoice")
    if text == "rule":
        raise KeyError("total")
    if text == "never" or (text == "later" and tries[key] < 3):
        raise TryAgainError("the archive is closed")
    messages = [{"role": "user", "content": text}]
    answer = await context.complete({"model": context.model, "messages": messages})
    return {"tries": tries[key], "chars": len(answer.text)}
"""
SETTINGS = """
[retry]
tiers = ["1s", "2s"]
max_attempts = 2

[types.invoice]
handler = "{handler}"
give_up = ["KeyError"]
max_attempts = 3
"""


def configured(deployment: Deployment, handler: str) -> None:
    (deployment.folder / "invoices.py").write_text(MODULE)
    (deployment.folder / "docllm.toml").write_text(SETTINGS.format(handler=handler))
    if deployment.kafka:
        deployment.producer("topics", "apply")


def test_a_persons_own_handler_runs_its_type(embedded: Deployment) -> None:
    """A handler's return value is the result; its errors are retried or given up by its type.

    The reason is stored.
    """
    embedded.llm("--latency", "0")
    configured(embedded, "invoices:extract")
    lines: list[dict[str, Any]] = [
        {"id": text, "type": "invoice", "input": {"text": text}}
        for text in ("good", "junk", "rule", "later", "never")
    ]
    lines.append({"id": "short", "type": "invoice", "max_attempts": 2, "input": {"text": "never"}})
    embedded.producer("load", str(embedded.write_lines(lines)))

    (agent,) = embedded.until_done()
    ended = {
        line["id"]: line
        for line in map(orjson.loads, embedded.producer("export", "--batch", BATCH).splitlines())
    }

    assert {
        key: line["status"] for key, line in ended.items() if line["status"] == "succeeded"
    } == {
        "good": "succeeded",
        "later": "succeeded",
    }
    assert [ended[key]["result"]["tries"] for key in ("good", "later")] == [1, 3]
    assert ended["junk"]["error"] == {"code": "HANDLER_GAVE_UP", "message": "this is no invoice"}
    assert ended["rule"]["error"] == {"code": "HANDLER_GAVE_UP", "message": "KeyError: 'total'"}
    assert (
        ended["never"]["error"]
        == ended["short"]["error"]
        == {"code": "HANDLER", "message": "the archive is closed"}
    )
    assert {key: line["attempts"] for key, line in ended.items()} == {
        "good": 1,
        "junk": 1,
        "rule": 1,
        "later": 3,
        "never": 3,
        "short": 2,
    }
    died = {(row.error_class, row.disposition) for row in embedded.ledger.dead_letters()}
    assert died == {("HANDLER_GAVE_UP", "permanent"), ("HANDLER", "exhausted")}
    assert "KeyError" in agent.err


PAID = """
import sys

class Panic(BaseException):
    "What a panic of a Rust library is in Python."

async def extract(context):
    messages = [{"role": "user", "content": "hi"}]
    await context.complete({"model": context.model, "messages": messages})
    if context.task.key.startswith("good"):
        return "fine"
    if context.task.key.startswith("exit"):
        sys.exit(0)
    raise Panic("index out of bounds")
"""


@repeated_on_embedded
def test_a_handler_that_panics_pays_for_its_attempts_and_no_more(deployment: Deployment) -> None:
    """A panic and `sys.exit` are counted failures of the handler, with file and line.

    They do not end the agent.
    """
    llm = deployment.llm("--latency", "0")
    configured(deployment, "invoices:extract")
    (deployment.folder / "invoices.py").write_text(PAID)
    keys = [f"{kind} {number}" for kind in ("good", "panic", "exit") for number in range(3)]
    lines = [
        {"id": key, "type": "invoice", "max_attempts": 2, "input": {"text": "x"}} for key in keys
    ]
    deployment.producer("load", str(deployment.write_lines(lines)))

    (agent,) = deployment.until_done()

    assert len(llm.calls()) == 3 + 2 * 6
    died = {
        (row.error_class, row.disposition, row.error_text)
        for row in deployment.ledger.dead_letters()
    }
    texts = ("Panic: index out of bounds", "SystemExit: 0")
    assert died == {("HANDLER", "exhausted", text) for text in texts}
    # Each kind once with its traceback, and with its count at the end.
    for line, text in ((14, texts[0]), (13, texts[1])):
        place = f"invoices.py:{line}"
        assert agent.err.count(f'invoices.py", line {line}, in extract') == 1
        assert f"handler of type invoice failed at {place}: {text}" in agent.err
        assert f"handler of type invoice failed 6 times at {place}" in agent.err
    shown = deployment.producer("dead", "show", "exit 1")
    document = orjson.loads(deployment.producer("dead", "show", "panic 1", "--json"))
    assert "\n    where its last attempt failed:\n" in shown
    assert 'invoices.py", line 13, in extract\n        sys.exit(0)\n' in shown
    assert document["letter"]["traceback"].endswith(
        'invoices.py", line 14, in extract\n    raise Panic("index out of bounds")'
    )


def test_memory_that_runs_out_twice_drains_the_agent(embedded: Deployment) -> None:
    """Each task has failed of it, counted; the agent ends with 5 and says what to do."""
    embedded.llm("--latency", "0")
    configured(embedded, "invoices:extract")
    (embedded.folder / "invoices.py").write_text(
        "async def extract(context):\n    raise MemoryError\n"
    )
    lines = [
        {"id": str(number), "type": "invoice", "max_attempts": 5, "input": {"text": "x"}}
        for number in range(2)
    ]
    embedded.producer("load", str(embedded.write_lines(lines)))

    done = embedded.run("agent", "--group", embedded.group)

    assert done.code == 5, done
    assert "error: memory ran out twice within a minute" in done.err
    assert [(row.error_class, row.outcome) for row in embedded.ledger.attempts()] == [
        ("HANDLER", "retry")
    ] * 2


def test_a_handler_that_cannot_be_used_is_exit_2(embedded: Deployment) -> None:
    """With a broken handler the agent does not start, and touches no task.

    The error names the setting and the remedy.
    """
    embedded.llm("--latency", "0")
    configured(embedded, "invoices:extrat")
    embedded.load(1)

    done = embedded.run("agent", "--group", embedded.group)

    assert done.code == 2
    assert (
        "types.invoice.handler: module invoices has no function extrat; define it there" in done.err
    )
    assert "Traceback" not in done.err
    assert embedded.ledger.agents() == []


PLAIN = """
import threading, time
from typing import Any

running, most, lock = 0, 0, threading.Lock()


def extract(context):
    global running, most
    with lock:
        running += 1
        most = max(most, running)
    key = context.task.key
    if key == "stuck":
        threading.Event().wait()
    time.sleep(0.5)
    messages = [{"role": "user", "content": context.document()}]
    answer = context.complete({"model": context.model, "messages": messages})
    context.log.info("answered")
    with lock:
        running -= 1
    return {"chars": len(answer.text), "most": most}
"""


@repeated_on_embedded
def test_plain_functions_run_side_by_side_in_threads(deployment: Deployment) -> None:
    """Plain functions block their own threads alone, and call through the agent."""
    llm = deployment.llm("--latency", "0")
    configured(deployment, "invoices:extract")
    (deployment.folder / "invoices.py").write_text(PLAIN)
    lines = [{"id": str(number), "type": "invoice", "input": {"text": "x"}} for number in range(24)]
    deployment.producer("load", str(deployment.write_lines(lines)))

    (agent,) = deployment.until_done("--slots", "8")
    exported = deployment.producer("export", "--batch", BATCH).splitlines()
    results = [orjson.loads(line)["result"] for line in exported]

    assert len(llm.calls()) == len(results) == 24
    assert 2 <= max(result["most"] for result in results) <= 8
    assert "event loop has been blocked" not in agent.err
    assert agent.err.count(f"({BATCH}/7): answered") == 1


def test_a_plain_function_that_never_ends_does_not_keep_its_agent(embedded: Deployment) -> None:
    """The drain gives its task back, and the exit does not wait for its thread."""
    embedded.llm("--latency", "0")
    configured(embedded, "invoices:extract")
    (embedded.folder / "invoices.py").write_text(PLAIN)
    lines = [{"id": name, "type": "invoice", "input": {"text": "x"}} for name in ("stuck", "good")]
    embedded.producer("load", str(embedded.write_lines(lines)))
    with (embedded.folder / "docllm.toml").open("a") as settings:
        settings.write("\n[agent]\ndrain_timeout_s = 1\n")
    agent = embedded.agent()
    embedded.until_settled(1)

    agent.signal(signal.SIGTERM)

    assert agent.wait() == 0, agent.tail()
    assert "(tasks/stuck): its attempt has ended, but its function goes on" in agent.err
    counts = embedded.ledger.counts()
    assert (counts["succeeded"], counts["pending"]) == (1, 1)
