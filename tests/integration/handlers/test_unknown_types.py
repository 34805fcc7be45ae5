"""A type that nobody knows: `load` refuses it, and an agent that does not know it holds it."""

import signal
from typing import Any

import orjson
import pytest

from tests.integration.support.deployment import BATCH, Deployment, task_line
from tests.integration.support.installations import repeated_on_embedded

HANDLER = """
async def handle(context):
    return "handled"
"""
KNOWN = '[types.invoice]\nhandler = "invoices:handle"\n'


def settings(deployment: Deployment, text: str) -> None:
    (deployment.folder / "invoices.py").write_text(HANDLER)
    (deployment.folder / "docllm.toml").write_text(text)


def _reported(deployment: Deployment) -> list[str]:
    """Return the types that the living agents report."""
    reports = [agent["report"] for agent in deployment.status()["agents"]]
    return [name for report in reports if report for name in report["types"]]


@pytest.mark.parametrize("options", [(), ("--strict",), ("--dry-run",)])
def test_a_misspelt_type_is_refused(embedded: Deployment, options: tuple[str, ...]) -> None:
    """The line, its field, the nearest type and the way out are named; the line is a reject.

    A dry run writes no rejects.
    """
    settings(embedded, KNOWN)
    lines = [task_line(0, type="invoice"), task_line(1, type="invocie"), task_line(2)]
    path = str(embedded.write_lines(lines))

    done = embedded.run("producer", "load", path, *options)

    assert done.code == 1, done
    assert "line 2: type 'invocie' is unknown; did you mean invoice?" in done.err
    assert "--allow-type invocie" in done.err
    rejects = embedded.folder / f"{BATCH}.jsonl.rejects.jsonl"
    if options == ("--dry-run",):
        assert not rejects.exists()
        return
    reject = orjson.loads(rejects.read_bytes())
    assert (reject["line"], reject["field"]) == (2, "type")
    assert orjson.loads(reject["text"])["id"] == lines[1]["id"]
    if not options:
        assert len(embedded.ledger.tasks()) == 2
    else:
        assert not (embedded.folder / "docllm-data").exists()


def test_a_rejected_type_is_repaired_and_loaded(embedded: Deployment) -> None:
    """The rejects file takes the right type, and an option lets the other one through."""
    settings(embedded, KNOWN)
    path = str(embedded.write_lines([task_line(0, type="invocie"), task_line(1, type="letter")]))
    assert embedded.run("producer", "load", path).code == 1
    rejects = embedded.folder / f"{BATCH}.jsonl.rejects.jsonl"
    rejects.write_text(rejects.read_text().replace('\\"invocie\\"', '\\"invoice\\"'))

    done = embedded.run("producer", "load", str(rejects), "--allow-type", "letter")

    assert done.code == 0, done
    assert len(embedded.ledger.tasks()) == 2


def test_the_types_of_an_agent_are_known_without_a_setting(embedded: Deployment) -> None:
    """A load goes by what an agent of its group reported, also after that agent's end."""
    settings(embedded, KNOWN)
    agent = embedded.agent("--rehearsal")
    embedded.until(lambda: "invoice" in _reported(embedded), "a report")
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 0
    settings(embedded, "")
    path = str(embedded.write_lines([task_line(0, type="invoice")]))

    done = embedded.run("producer", "load", path, "--group", embedded.group)
    other = embedded.run("producer", "load", path, "--group", "other", "--batch", "other")

    assert done.code == 0, done
    assert other.code == 1, other
    assert "type 'invoice' is unknown" in other.err


def _ends(deployment: Deployment) -> dict[str, tuple[str, object]]:
    lines = map(orjson.loads, deployment.producer("export", "--batch", BATCH).splitlines())
    return {line["id"]: (line["status"], line["result"]) for line in lines}


def test_a_task_of_an_unknown_type_waits_until_an_agent_knows_it(embedded: Deployment) -> None:
    """The task is no completion; log and status name it, and a restart with a section helps.

    Tasks of other types are not held up.
    """
    llm = embedded.llm("--latency", "0")
    embedded.use_tiers("2s", "1h")
    lines = [task_line(0), task_line(1, type="invoice"), task_line(2, type="invoice")]
    path = str(embedded.write_lines(lines))
    embedded.producer("load", path, "--allow-type", "invoice")
    ignorant = embedded.agent("--until-done")
    embedded.until(lambda: embedded.ledger.counts()["retrying"] == 2, "two held tasks")
    embedded.until(lambda: embedded.ledger.counts()["succeeded"] == 1, "the other task")
    embedded.until(lambda: "[types.invoice]" in ignorant.err, "a warning")
    embedded.until(
        lambda: (
            [(wait["reason"], wait["key"], wait["tasks"]) for wait in embedded.status()["waiting"]]
            == [("TYPE", "invoice", 2)]
        ),
        "two tasks that wait for the type",
    )

    advice = "[types.invoice] to the agents' settings"
    embedded.until(
        lambda: any(advice in reason for reason in embedded.status()["reasons"]),
        "the agent's report to say so",
    )
    assert ignorant.running
    ignorant.signal(signal.SIGTERM)
    assert ignorant.wait() == 0
    settings(embedded, KNOWN)
    embedded.until_done()
    ends = _ends(embedded)
    assert [ends[line["id"]] for line in lines[1:]] == [("succeeded", "handled")] * 2
    assert len(llm.calls()) == 1
    assert all(task.attempt == 0 for task in embedded.ledger.tasks())


@repeated_on_embedded
def test_a_mixed_group_runs_every_task(deployment: Deployment) -> None:
    """One agent knows the type and another does not: each task comes to the one that knows it."""
    llm = deployment.llm("--latency", "0")
    deployment.use_tiers("1s", "2s")
    path = str(deployment.write_lines(task_line(number, type="invoice") for number in range(40)))
    deployment.producer("load", path, "--allow-type", "invoice")
    settings(deployment, "")
    ignorant = deployment.agent()
    deployment.until(lambda: deployment.ledger.counts()["retrying"] == 40, "held tasks")
    settings(deployment, KNOWN)
    knowing = deployment.agent("--until-done")

    assert knowing.wait() == 0

    assert ignorant.running
    assert set(_ends(deployment).values()) == {("succeeded", "handled")}
    assert llm.calls() == []


def test_a_task_that_its_types_prompt_does_not_fit_is_refused(embedded: Deployment) -> None:
    """Nothing is paid for, and the line can be repaired among the rejects."""
    settings(embedded, "[types.memo]\nprompt = 'Write about {document}'\n[types.bare]\n")
    lines: list[dict[str, Any]] = [
        {"id": "a", "type": "memo", "input": {"text": "the sea"}},
        {"id": "b", "type": "memo"},
        {"id": "c", "type": "bare"},
    ]

    done = embedded.run("producer", "load", str(embedded.write_lines(lines)))

    assert done.code == 1, done
    assert "line 2: input is missing, but the prompt of type memo has {document}" in done.err
    assert "line 3: prompt is missing, and type bare has no prompt and no handler" in done.err
    assert len(embedded.ledger.tasks()) == 1
