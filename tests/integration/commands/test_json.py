"""`--json`: one document on stdout for each command that prints, with the same exit codes."""

from pathlib import Path
from typing import Any

import orjson

from docllm.schemas.task.record.envelope import Outgoing
from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import Done
from tests.support import json_schemas

ROOT = Path(__file__).parents[3]
LINES = (b'{"id":"a","prompt":"p"}\n', b'{"id":"b","prompt":"p"}\n')


def document(done: Done, name: str, code: int = 0) -> dict[str, Any]:
    """Return the whole of stdout as one document, which fits the published schema of this name."""
    assert done.code == code, done.err
    value = orjson.loads(done.out)
    assert isinstance(value, dict)
    assert (value["version"], value.get("group", "docllm")) == (1, "docllm")
    assert json_schemas.faults(name, value) == []
    return value


def test_each_command_answers_a_script(embedded: Deployment) -> None:
    """A batch's life: check, load, a failure, replay, cancel, all read by a script."""
    embedded.llm("--latency", "0", "--faults", "400=1")
    checked = document(embedded.run("producer", "check", "--json"), "check", 4)
    assert not checked["ok"]
    assert [(check["name"], check["result"]) for check in checked["checks"]][-1] == (
        "llm",
        "failed",
    )
    assert "answers 400" in checked["checks"][-1]["message"]

    migrated = document(embedded.run("producer", "migrate", "--json"), "migrate")
    assert migrated["before"] is None
    assert migrated["after"].startswith("0")
    applied = document(embedded.run("producer", "topics", "apply", "--json"), "topics")
    assert applied["action"] == "apply"
    assert applied["changes"]
    compared = document(embedded.run("producer", "topics", "check", "--json"), "topics")
    assert (compared["differences"], compared["missing"]) == ([], [])

    path = embedded.folder / "mixed.jsonl"
    path.write_bytes(b"".join(LINES) + b"no JSON\n")
    dry = document(embedded.run("producer", "load", str(path), "--dry-run", "--json"), "load", 1)
    assert (dry["dry_run"], dry["new"], dry["loaded"], dry["bad"]) == (True, 2, 0, 1)
    loaded = document(embedded.run("producer", "load", str(path), "--json"), "load", 1)
    assert loaded["batch"] == "mixed"
    assert (loaded["new"], loaded["loaded"], loaded["known"], loaded["bad"]) == (2, 2, 0, 1)
    assert loaded["rejects"].endswith("mixed.jsonl.rejects.jsonl")
    assert loaded["estimate"]["tasks"] == 2
    assert loaded["estimate"]["cost"] is None
    again = document(embedded.run("producer", "load", str(path), "--json"), "load", 1)
    assert (again["new"], again["known"]) == (0, 2)

    embedded.until_done()
    document(embedded.run("producer", "config", "--json"), "config", 0)
    waited = document(
        embedded.run("producer", "wait", "--batch", "mixed", "--fail-on-dead", "--json"), "wait", 1
    )
    assert (waited["done"], waited["total"], waited["dead"]) == (True, 2, 2)
    plan = document(embedded.run("producer", "replay", "--all", "--dry-run", "--json"), "replay")
    assert (plan["dry_run"], plan["plan"]["tasks"], plan["unfinished"]) == (True, 2, [])
    replayed = document(embedded.run("producer", "replay", "--all", "--yes", "--json"), "replay")
    (run,) = replayed["replays"]
    assert (run["total"], run["replayed"], run["left"], run["unread"]) == (2, 2, 0, 0)
    listed = document(embedded.run("producer", "replay", "--list", "--json"), "replay")
    assert [each["id"] for each in listed["replays"]] == [run["id"]]
    resumed = document(embedded.run("producer", "replay", "--resume", "--json"), "replay")
    assert resumed["replays"] == []

    opened = document(embedded.run("producer", "guard", "open", "mixed", "--json"), "guard_open")
    assert (opened["batch"], opened["opened"]) == ("mixed", [])
    one = document(embedded.run("producer", "cancel", "--id", "a", "--json"), "cancel")
    assert (one["batch"], one["id"], one["cancelled"]) == ("mixed", "a", 1)
    whole = document(embedded.run("producer", "cancel", "--batch", "mixed", "--json"), "cancel")
    assert (whole["batch"], whole["cancelled"], whole["cancelled_before"]) == ("mixed", 1, False)
    route = document(embedded.run("agent", "resume", "default", "--json"), "resume")
    assert (route["route"], route["resumed"]) == ("default", True)


def test_dead_letters_answer_a_script(embedded: Deployment) -> None:
    """A script reads of a task and a record that were given up, and of the topic with both."""
    embedded.llm("--latency", "0", "--faults", "400=1")
    embedded.load(2)
    embedded.bus.write([Outgoing(embedded.topics.name("inbox"), None, b"garbage", [])])
    embedded.until_done()

    dead = document(embedded.run("producer", "dead", "list", "--json"), "dead_list")
    assert sorted((group["error_class"], group["tasks"]) for group in dead["groups"]) == [
        ("BAD_REQUEST", 2),
        ("UNDECODABLE", 0),
    ]
    task = document(embedded.run("producer", "show", "t0", "--json"), "show")
    assert (task["kind"], len(task["history"]), task["letter"]["error_class"]) == (
        "task",
        1,
        "BAD_REQUEST",
    )
    record = document(embedded.run("producer", "show", "quarantine:1", "--json"), "show")
    assert (record["kind"], record["value"]) == ("quarantine", {"text": "garbage"})
    from_topic = ("replay", "--from-topic", "--force", "--dry-run", "--json")
    letters = document(embedded.run("producer", *from_topic), "replay_from_topic")
    assert (letters["dry_run"], letters["left"]) == (True, 1)
    guards = document(embedded.run("producer", "guard", "list", "--json"), "guard_list")
    assert guards["guards"] == []


def test_an_error_is_a_document(embedded: Deployment) -> None:
    """A script that reads stdout learns what stderr says."""
    embedded.run("producer", "migrate")
    codes = {
        ("cancel", "--id", "none"): 1,
        ("show", "none"): 1,
        ("dead", "show", "none"): 1,
        ("cancel",): 2,
        ("replay", "--all"): 2,
        ("load", "missing.jsonl"): 2,
        ("guard", "open", "none"): 2,
    }

    for words, code in codes.items():
        done = embedded.run("producer", *words, "--json")

        assert done.err == f"error: {document(done, 'error', code)['error']}\n", words

    done = embedded.run("producer", "replay", "--id", "none", "--yes", "--json")

    found = document(done, "replay", 1)
    assert (found["id"], found["states"]) == ("none", [])
    assert done.err == f"error: {found['error']}\n"


def test_an_ambiguous_id_is_a_document_with_its_batches(embedded: Deployment) -> None:
    """A script can choose one of them."""
    path = embedded.folder / "a.jsonl"
    path.write_bytes(LINES[0])
    for batch in ("one", "two"):
        embedded.run("producer", "load", str(path), "--batch", batch)

    for words in (("cancel", "--id", "a"), ("show", "a"), ("dead", "show", "a")):
        found = document(embedded.run("producer", *words, "--json"), "error", 2)

        assert (found["id"], found["batches"]) == ("a", ["one", "two"])
        assert "name one with --batch" in found["error"]


def test_the_page_of_commands_names_each_schema() -> None:
    """Whoever reads a command's document finds its schema, and each schema's examples fit it."""
    page = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
    lines = (ROOT / "docs" / "reference" / "task-lines.md").read_text("utf-8")
    for path in json_schemas.SCHEMAS.glob("*.json"):
        assert f"`{path.name}`" in page or f"`{path.name}`" in lines, path.name
        for example in json_schemas.schema_of(path.stem).get("examples", ()):
            assert json_schemas.faults(path.stem, example, strict=False) == [], path.name


def test_the_file_of_an_export_may_follow_an_option(embedded: Deployment) -> None:
    """`-o FILE` is what many tools take; both at once are a mistake."""
    embedded.load(1)
    path = embedded.folder / "results.jsonl"

    assert embedded.run("producer", "export", "-o", str(path)).code == 0
    assert orjson.loads(path.read_bytes())["status"] == "pending"
    both = embedded.run("producer", "export", "-o", "x.jsonl", "y.jsonl")
    assert (both.code, "name the file once" in both.err) == (2, True)
