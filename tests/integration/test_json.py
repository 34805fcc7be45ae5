"""`--json`: one document on stdout for each command that prints, with the same exit codes."""

from typing import Any

import orjson
import pytest

from tests.integration.deployment import Deployment
from tests.integration.programs import Done

LINES = (b'{"id":"a","prompt":"p"}\n', b'{"id":"b","prompt":"p"}\n')


def document(done: Done, code: int = 0) -> dict[str, Any]:
    """Return the whole of stdout as one document."""
    assert done.code == code, done.err
    value = orjson.loads(done.out)
    assert isinstance(value, dict)
    assert (value["version"], value["group"]) == (1, "docllm")
    return value


def test_each_command_answers_a_script(embedded: Deployment) -> None:
    """A batch's life: check, load, a failure, replay, cancel, all read by a script."""
    embedded.llm("--latency", "0", "--faults", "400=1")
    checked = document(embedded.run("producer", "check", "--json"), 4)
    assert not checked["ok"]
    assert [(check["name"], check["result"]) for check in checked["checks"]][-1] == (
        "llm",
        "failed",
    )
    assert "answers 400" in checked["checks"][-1]["message"]

    migrated = document(embedded.run("producer", "migrate", "--json"))
    assert migrated["before"] is None
    assert migrated["after"].startswith("0")
    applied = document(embedded.run("producer", "topics", "apply", "--json"))
    assert applied["action"] == "apply"
    assert applied["changes"]
    compared = document(embedded.run("producer", "topics", "check", "--json"))
    assert (compared["differences"], compared["missing"]) == ([], [])

    path = embedded.folder / "mixed.jsonl"
    path.write_bytes(b"".join(LINES) + b"no JSON\n")
    dry = document(embedded.run("producer", "load", str(path), "--dry-run", "--json"), 1)
    assert (dry["dry_run"], dry["new"], dry["loaded"], dry["bad"]) == (True, 2, 0, 1)
    loaded = document(embedded.run("producer", "load", str(path), "--json"), 1)
    assert loaded["batch"] == "mixed"
    assert (loaded["new"], loaded["loaded"], loaded["known"], loaded["bad"]) == (2, 2, 0, 1)
    assert loaded["rejects"].endswith("mixed.jsonl.rejects.jsonl")
    assert loaded["estimate"]["tasks"] == 2
    assert loaded["estimate"]["cost"] is None
    again = document(embedded.run("producer", "load", str(path), "--json"), 1)
    assert (again["new"], again["known"]) == (0, 2)

    embedded.until_done()
    plan = document(embedded.run("producer", "replay", "--all", "--dry-run", "--json"))
    assert (plan["dry_run"], plan["plan"]["tasks"], plan["unfinished"]) == (True, 2, [])
    replayed = document(embedded.run("producer", "replay", "--all", "--yes", "--json"))
    (run,) = replayed["replays"]
    assert (run["total"], run["replayed"], run["left"], run["unread"]) == (2, 2, 0, 0)
    listed = document(embedded.run("producer", "replay", "--list", "--json"))
    assert [each["id"] for each in listed["replays"]] == [run["id"]]
    resumed = document(embedded.run("producer", "replay", "--resume", "--json"))
    assert resumed["replays"] == []

    opened = document(embedded.run("producer", "guard", "open", "mixed", "--json"))
    assert (opened["batch"], opened["opened"]) == ("mixed", [])
    one = document(embedded.run("producer", "cancel", "--id", "a", "--json"))
    assert (one["batch"], one["id"], one["cancelled"]) == ("mixed", "a", 1)
    whole = document(embedded.run("producer", "cancel", "--batch", "mixed", "--json"))
    assert (whole["batch"], whole["cancelled"], whole["cancelled_before"]) == ("mixed", 1, False)
    route = document(embedded.run("agent", "resume", "default", "--json"))
    assert (route["route"], route["resumed"]) == ("default", True)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("cancel", "--id", "none"), 1),
        (("dead", "show", "none"), 1),
        (("cancel",), 2),
        (("replay", "--all"), 2),
        (("load", "missing.jsonl"), 2),
        (("guard", "open", "none"), 2),
    ],
)
def test_an_error_is_a_document(embedded: Deployment, words: tuple[str, ...], code: int) -> None:
    """A script that reads stdout learns what stderr says."""
    embedded.run("producer", "migrate")

    done = embedded.run("producer", *words, "--json")

    assert done.err == f"error: {document(done, code)['error']}\n"


@pytest.mark.parametrize("words", [("cancel", "--id", "a"), ("dead", "show", "a")])
def test_an_ambiguous_id_is_a_document_with_its_batches(
    embedded: Deployment, words: tuple[str, ...]
) -> None:
    """A script can choose one of them."""
    path = embedded.folder / "a.jsonl"
    path.write_bytes(LINES[0])
    for batch in ("one", "two"):
        embedded.run("producer", "load", str(path), "--batch", batch)

    found = document(embedded.run("producer", *words, "--json"), 1)

    assert (found["id"], found["batches"]) == ("a", ["one", "two"])
    assert "name one with --batch" in found["error"]


def test_the_file_of_an_export_may_follow_an_option(embedded: Deployment) -> None:
    """`-o FILE` is what many tools take; both at once are a mistake."""
    embedded.load(1)
    path = embedded.folder / "results.jsonl"

    assert embedded.run("producer", "export", "-o", str(path)).code == 0
    assert orjson.loads(path.read_bytes())["status"] == "pending"
    both = embedded.run("producer", "export", "-o", "x.jsonl", "y.jsonl")
    assert (both.code, "name the file once" in both.err) == (2, True)
