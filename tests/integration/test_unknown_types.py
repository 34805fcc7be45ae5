"""A type that nobody knows: `load` refuses it."""

import signal

import orjson
import pytest

from tests.integration.deployment import BATCH, Deployment, task_line

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
    """The line, its field, the nearest type and the way out are named; the line is a reject."""
    settings(embedded, KNOWN)
    lines = [task_line(0, type="invoice"), task_line(1, type="invocie"), task_line(2)]
    path = str(embedded.write_lines(lines))

    done = embedded.run("producer", "load", path, *options)

    assert done.code == 1, done
    assert "line 2: type 'invocie' is unknown; did you mean invoice?" in done.err
    assert "--allow-type invocie" in done.err
    reject = orjson.loads((embedded.folder / f"{BATCH}.jsonl.rejects.jsonl").read_bytes())
    assert (reject["line"], reject["field"]) == (2, "type")
    assert orjson.loads(reject["text"])["id"] == lines[1]["id"]
    if not options:
        assert len(embedded.ledger.tasks()) == 2
    elif options == ("--strict",):
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
