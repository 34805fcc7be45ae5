"""Repair in place: dead tasks run again with another model, route, prompt, schema or document."""

from typing import Any

import orjson
import pytest

from tests.integration.support.deployment import Deployment, task_line

# Of a 400 a dozen would die: their guard holds the others back.
BAD = ("--latency", "0", "--faults", "413=1")
SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


def died(deployment: Deployment, count: int) -> None:
    """Let tasks die of a server that refuses them, and heal it."""
    llm = deployment.llm(*BAD)
    deployment.load(count)
    deployment.until_done()
    llm.dial()


def exported(deployment: Deployment, batch: str = "tasks") -> dict[str, dict[str, Any]]:
    """Return the result lines of a batch by id."""
    lines = map(orjson.loads, deployment.producer("export", "--batch", batch).splitlines())
    return {line["id"]: line for line in lines}


def test_dead_tasks_run_with_another_model_prompt_and_schema(deployment: Deployment) -> None:
    """The replay shows the changes before, agents run with them, and every screen tells them."""
    died(deployment, 3)
    prompt = deployment.folder / "prompt.txt"
    prompt.write_text("Name the title of {document}\n")
    schema = deployment.folder / "schema.json"
    schema.write_bytes(orjson.dumps(SCHEMA))
    changes = ("--model", "other", "--prompt", str(prompt), "--schema", str(schema))
    some = ("--batch", "tasks", "--limit", "2", *changes)

    planned = deployment.producer("replay", *some, "--dry-run")
    deployment.producer("replay", *some, "--yes")
    deployment.until_done()

    assert "they run with --model other --prompt" in planned
    results = exported(deployment)
    assert [results[key]["status"] for key in ("t0", "t1", "t2")] == ["succeeded"] * 2 + ["dead"]
    overrides = {
        "model": "other",
        "prompt": "Name the title of {document}",
        "schema": SCHEMA,
    }
    assert results["t0"]["overrides"] == overrides
    assert results["t0"]["model"] == "other"
    assert results["t0"]["result"].keys() == {"title"}
    assert "overrides" not in results["t2"]
    shown = deployment.producer("show", "t0")
    assert "a replay has changed its model: other" in shown
    assert "a replay has changed its prompt: Name the title of {document}" in shown
    assert "--model other" in deployment.producer("replay", "--list")


def test_dead_tasks_run_on_another_route(embedded: Deployment) -> None:
    """The record names the route; the model of the line, which belongs to another, is not used."""
    died(embedded, 2)
    dead = embedded.llms[-1]
    dead.dial("413=1")
    backup = embedded.llm("--latency", "0")
    embedded.environ["DOCLLM_LLM_BASE_URL"] = dead.url
    route = f'[routes.backup]\nbase_url = "{backup.url}"\nmodel = "spare"\n'
    (embedded.folder / "docllm.toml").write_text(route)

    embedded.producer("replay", "--all", "--route", "backup", "--yes")
    embedded.until_done()

    results = exported(embedded).values()
    assert {(line["route"], line["model"]) for line in results} == {("backup", "spare")}
    assert {call.status for call in backup.calls()} == {200}
    assert len(dead.calls()) == 2, "the dead route was called again"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--route", "nowhere"), "names 'nowhere', which is no route"),
        (("--prompt", "No place for it"), "prompt has no {document}"),
        (("--model", " "), "--model has blanks around it"),
        (("--schema", "missing.json"), "--schema missing.json cannot be read"),
    ],
)
def test_a_wrong_change_is_refused_before_anything_is_written(
    embedded: Deployment, change: tuple[str, str], words: str
) -> None:
    died(embedded, 1)

    done = embedded.run("producer", "replay", "--all", *change, "--yes")

    assert done.code == 2
    assert words in done.err
    assert embedded.ledger.counts()["dead"] == 1
    assert embedded.producer("replay", "--list").startswith("nothing was replayed")


def test_repaired_documents_run_again_and_lost_ones_are_told(deployment: Deployment) -> None:
    """One document was repaired, one deleted; nothing else is lost, and old records are stale."""
    deployment.use_tiers("1s", max_attempts=2)
    deployment.llm("--latency", "0")
    folder = deployment.folder / "docs"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.txt").write_text(f"Document {name} has some words.")
    deployment.environ["DOCLLM_DOCUMENT_ROOTS"] = str(folder)
    by_uri = ("--documents", str(folder), "--prompt", "Summarize: {document}", "--by-uri")
    deployment.producer("load", *by_uri)
    (folder / "b.txt").write_text("Document b was repaired, and has other words now.")
    (folder / "c.txt").unlink()
    deployment.until_done()
    assert deployment.ledger.counts()["dead"] == 2

    done = deployment.run(
        "producer", "replay", "--all", "--refresh-documents", "--yes", "--group", deployment.group
    )
    deployment.until_done()

    assert done.code == 1, done
    assert "1 document changed, 0 as when loaded" in done.out
    assert "c.txt of batch docs: cannot be read: No such file or directory" in done.out
    results = exported(deployment, "docs")
    assert "was repaired" in results["b.txt"]["result"]
    assert results["c.txt"]["status"] == "dead"
    assert deployment.ledger.quarantined() == []
    again = orjson.loads(deployment.producer("load", *by_uri, "--json"))
    assert again["known"] == 2, "the repaired document is not recognized"
    assert again["bad"] == 0


def test_lines_of_dead_tasks_are_edited_and_loaded(embedded: Deployment) -> None:
    """What replays have changed is in the lines; a file appears whole, `-` is standard output."""
    died(embedded, 2)
    embedded.llms[-1].dial("413=1")
    embedded.producer("replay", "--id", "t1", "--model", "other", "--yes")
    embedded.until_done()
    embedded.llms[-1].dial()
    file = embedded.folder / "again.jsonl"

    embedded.producer("dead", "export", "--batch", "tasks", str(file))
    streamed = embedded.producer("dead", "export", "--id", "t0", "-")

    lines = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    assert lines == [task_line(0), task_line(1, model="other")]
    assert orjson.loads(streamed) == task_line(0)
    file.write_bytes(file.read_bytes().replace(b"Summarize", b"Shorten"))
    embedded.producer("load", str(file))
    embedded.until_done()
    assert {line["status"] for line in exported(embedded, "again").values()} == {"succeeded"}


def test_a_changed_prompt_is_called_a_changed_prompt(embedded: Deployment) -> None:
    """Loading the same documents with another prompt names the prompt, and the two ways on."""
    embedded.llm("--latency", "0")
    folder = embedded.folder / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("Document a has some words.")
    documents = ("load", "--documents", str(folder), "--prompt")
    embedded.producer(*documents, "Summarize: {document}")

    changed = embedded.run("producer", *documents, "Shorten: {document}")
    dry = embedded.run("producer", *documents, "Shorten: {document}", "--dry-run")
    (folder / "a.txt").write_text("Document a has other words.")
    inline = embedded.run("producer", *documents, "Summarize: {document}")

    for done in (changed, dry):
        assert done.code == 1
        assert "is in batch 'docs' already with another prompt" in done.err
        assert "load it into another batch with --batch, or let the dead tasks" in done.err
        assert "docllm replay --batch docs --prompt ..." in done.err.replace("\n", " ")
        assert "repair or convert" not in done.out + done.err
    assert "already with other content" in inline.err
    assert "--refresh-documents" not in inline.err, "text in the line has no file to look at"
