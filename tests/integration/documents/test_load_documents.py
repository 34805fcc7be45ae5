"""What a person reads when documents and lines are faulty, old or too long."""

from pathlib import Path

import orjson
import pytest

from tests.integration.support.deployment import Deployment, task_line

NO_TEXT = (
    "1,998 files (00000.bin, 00001.bin, 00002.bin, ...): is not text: it has a zero byte; "
    "convert it to text, PDF or DOCX, or leave it out with a pattern"
)
PROMPT = ("--prompt", "Sum up: {document}")


def rejects(deployment: Deployment, batch: str) -> list[dict[str, object]]:
    path = deployment.folder / f"{batch}.rejects.jsonl"
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def folder(deployment: Deployment, name: str = "in") -> Path:
    path = deployment.folder / name
    path.mkdir()
    return path


@pytest.mark.parametrize("options", [(), ("--strict",), ("--dry-run",)])
def test_the_same_fault_in_many_documents_is_one_line(
    embedded: Deployment, options: tuple[str, ...]
) -> None:
    """Thousands of files are one line with a count and three names; each reject has its name.

    A dry run writes no rejects.
    """
    files = folder(embedded)
    for number in range(1_998):
        (files / f"{number:05}.bin").write_bytes(b"\0")
    (files / "good.txt").write_text("good")
    (files / "\x1b[31mred").write_bytes(b"")
    (files / ("x" * 200)).write_text("a name that is too long for an id")

    done = embedded.run("producer", "load", "--documents", "in", *PROMPT, *options)

    assert done.code == 1, done
    renamed = "rename the file or its folder: the path is the task's id, of at most 191 bytes"
    assert done.err.splitlines()[:3] == [
        " [31mred: is empty; remove the file, or leave it out with a pattern",
        NO_TEXT,
        f"{'x' * 200}: id is 200 bytes long; {renamed}",
    ]
    assert "2,000 bad files" in done.out
    assert "bad line" not in done.out + done.err
    if options == ("--dry-run",):
        assert not (embedded.folder / "in.rejects.jsonl").exists()
        return
    refused = rejects(embedded, "in")
    assert refused[1]["error"] == "00000.bin: is not text: it has a zero byte"
    assert len(refused) == 2_000
    assert {reject["text"] for reject in refused} == {None}


def test_documents_that_changed_are_named(embedded: Deployment) -> None:
    """A document whose id is in the batch with other content is named as a file."""
    files = folder(embedded)
    for name in ("a.txt", "b.txt"):
        (files / name).write_text(name)
    assert embedded.run("producer", "load", "--documents", "in", *PROMPT).code == 0
    for name in ("a.txt", "b.txt"):
        (files / name).write_text(f"{name} changed")

    done = embedded.run("producer", "load", "--documents", "in", *PROMPT)

    assert done.code == 1, done
    assert (
        "2 files (a.txt, b.txt): is in batch 'in' already with other content; "
        "load the documents as they are now into another batch with --batch"
    ) in done.err


def test_bad_lines_are_reported_in_their_order(embedded: Deployment) -> None:
    """A clash, which only the ledger knows, stands where its line stands."""
    path = embedded.write_lines([task_line(number) for number in range(500)])
    assert embedded.run("producer", "load", str(path)).code == 0
    lines = [task_line(number) for number in range(500)]
    for number in (7, 150, 450):
        lines[number] |= {"prompt": "another {document}"}
    for number in (3, 201, 470):
        lines[number] |= {"priority": "high"}
    embedded.write_lines(lines)

    done = embedded.run("producer", "load", str(path))

    said = [line.partition(":")[0] for line in done.err.splitlines() if line.startswith("line ")]
    assert said == [f"line {number + 1}" for number in (3, 7, 150, 201, 450, 470)]
    numbers = [reject["line"] for reject in rejects(embedded, path.name)]
    assert numbers == [4, 8, 151, 202, 451, 471]


def test_a_document_that_is_blank_when_it_is_read_is_dead_without_a_call(
    embedded: Deployment,
) -> None:
    """The document had content when it was loaded, or the load could not read it."""
    llm = embedded.llm("--latency", "0")
    late = embedded.folder / "late.txt"
    late.write_text("text")
    line = {"id": "u", "prompt": "{document}", "input": {"uri": late.as_uri()}}
    embedded.producer("load", str(embedded.write_lines([line])))
    late.write_text("")

    embedded.until_done()

    (task,) = embedded.ledger.tasks()
    assert task.death is not None
    assert (task.death.disposition, task.death.error_class) == ("permanent", "DOCUMENT_REFUSED")
    assert llm.calls() == []


@pytest.mark.parametrize("options", [(), ("--strict",), ("--dry-run",)])
def test_old_and_long_tasks_are_warned_about(
    embedded: Deployment, options: tuple[str, ...]
) -> None:
    """The tasks are loaded, and the person hears of them before agents run."""
    (embedded.folder / "docllm.toml").write_text(
        '[llm]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "mini"\ncontext_tokens = 1000\n'
    )
    (embedded.folder / "docllm.toml").chmod(0o600)
    old = task_line(0, deadline="2020-01-01T00:00:00Z")
    long = {"id": "long", "prompt": "{document}", "input": {"text": "word " * 2000}}
    path = embedded.write_lines([old, long, task_line(2)])

    done = embedded.run("producer", "load", str(path), *options)

    assert done.code == 0, done
    assert done.err.count("1 task has a deadline that has passed, such as ") == 1
    assert "(line 1: 2020-01-01T00:00:00Z); it will be dead without a call" in done.err
    assert "1 task is probably longer than the model takes: 'long' (about 2,5" in done.err
    assert "mini takes 1,000); estimated with 4 bytes a token" in done.err


def test_a_large_batch_that_loses_the_prompt_cache_is_warned_about(embedded: Deployment) -> None:
    """Before it is paid for, a person learns what to move."""
    prompt = "{document}\n" + "Follow this rule. " * 300
    path = embedded.write_lines(task_line(number, prompt=prompt) for number in range(120))

    done = embedded.run("producer", "load", str(path), "--dry-run")

    assert done.code == 0, done
    assert "{document} is not last in the prompt of 120 tasks, so no prompt cache" in done.err
    assert "about 162,030 input tokens of all tasks" in done.err
