"""Batches from Python, as a script or a notebook makes them."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

import docllm
from docllm.schemas.errors import ConfigError
from tests.integration.support.deployment import Deployment
from tests.integration.support.programs import until

PROMPT = "Summarize: {document}"
ROWS = [{"id": f"id-{number}", "text": f"Text {number} is about cats."} for number in range(20)]


class Invoice:
    """What `docllm` needs of a pydantic model."""

    def __init__(self, party: str) -> None:
        self.party = party

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        properties = {"party": {"type": "string"}}
        return {"type": "object", "properties": properties, "required": ["party"]}

    @classmethod
    def model_validate(cls, value: Mapping[str, Any]) -> "Invoice":
        return cls(value["party"])


@contextmanager
def inside(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process be a Python program of an installation."""
    with monkeypatch.context() as patch:
        patch.chdir(deployment.folder)
        for name in [name for name in os.environ if name.startswith("DOCLLM_")]:
            patch.delenv(name)
        for name, value in deployment.environ.items():
            patch.setenv(name, value)
        yield


def test_a_script_loads_runs_and_reads_a_batch(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bad row is named, also by a run alone, and the others run; no thread is left."""
    llm = deployment.llm()
    rows = [*ROWS, {"id": "empty", "text": ""}]
    with inside(deployment, monkeypatch):
        batch = docllm.Batch("reports", prompt=PROMPT, rows=rows, group=deployment.group)
        assert batch.status == docllm.Counts()

        submitted = batch.submit()
        again = batch.submit()
        with pytest.warns(UserWarning, match="1 row of batch reports refused, the first: row 21"):
            assert batch.run(slots=4) is batch

        results = list(batch.results())
        found = docllm.Client(group=deployment.group).get("reports", "id-7")
        counts = batch.wait(timeout_s=5, fail_on_dead=True)
    assert (submitted.loaded, submitted.twins) == (20, 0)
    assert [str(reject) for reject in submitted.rejects] == [
        "row 21: text is empty; write it, or leave the row out; then load again"
    ]
    assert (again.loaded, again.twins) == (0, 20)
    assert (counts.succeeded, counts.total, counts.done) == (20, 20, True)
    assert [result.id for result in results] == [row["id"] for row in ROWS]
    assert found == results[7]
    assert found.result == "Text 7 is about cats."
    assert len(llm.calls()) == 20
    assert [
        thread.name for thread in threading.enumerate() if thread.name.startswith("docllm")
    ] == []


def test_answers_under_a_schema_are_models(
    embedded: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a dict in its place they are parsed JSON."""
    given: dict[str, Any] = {"prompt": PROMPT, "rows": ROWS[:2], "group": embedded.group}
    with inside(embedded, monkeypatch):
        batch = docllm.Batch("invoices", schema=Invoice, **given).run(rehearsal=True)
        (first, _) = batch.results()
        (as_json, _) = docllm.Batch("invoices", group=embedded.group).results()
    assert isinstance(first.result, Invoice)
    assert as_json.result == {"party": first.result.party}


def test_dead_tasks_are_seen_and_tried_again(
    embedded: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait that was told to fails."""
    embedded.producer("migrate")
    with inside(embedded, monkeypatch):
        client = docllm.Client(group=embedded.group)
        line = {"id": "a", "prompt": "x", "deadline": "2001-01-01T00:00:00Z"}
        assert client.submit(line, batch="late").loaded == 1
        batch = client.batch("late")
        assert client.get("late", "a").status == "pending"
        batch.run(rehearsal=True)
        (dead,) = batch.dead()
        assert dead.error is not None
        assert dead.error["code"] == "EXPIRED"
        with pytest.raises(docllm.WaitError, match="1 task of batch late"):
            batch.wait(fail_on_dead=True)
        assert batch.replay() == 1
        with pytest.raises(TimeoutError, match="1 task open"):
            batch.wait(0.1)
        with pytest.raises(ConfigError, match="no task 'b'"):
            client.get("late", "b")


def test_nothing_that_can_be_loaded_is_an_error(
    embedded: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names row and field."""
    with inside(embedded, monkeypatch):
        batch = docllm.Batch("bad", rows=[{"id": "a", "prompt": 5}], group=embedded.group)
        with pytest.raises(docllm.LoadError, match="row 1: prompt is a whole number") as caught:
            batch.submit()
        assert [(reject.row, reject.field) for reject in caught.value.rejects] == [(1, "prompt")]
        with pytest.raises(docllm.LoadError, match=r"row 1: text .* with prompt="):
            docllm.Batch("asked", rows=ROWS, group=embedded.group).submit()
        with pytest.raises(docllm.LoadError, match="there are no rows"):
            docllm.Batch("none", rows=iter(()), group=embedded.group).submit()
        with pytest.raises(ConfigError, match=r"^argument --priority: "):
            docllm.Batch("x", priority=11, rows=[{"id": "a", "prompt": "x"}]).submit()
        with pytest.raises(ConfigError, match="no LLM is configured"):
            docllm.Batch("some", rows=[{"id": "a", "prompt": "x"}], group=embedded.group).run()


def test_an_iterator_is_read_once(embedded: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run after a submit goes on with its tasks; what broke in the middle is not taken up."""

    def broken() -> Iterator[dict[str, str]]:
        yield ROWS[0]
        raise OSError("the source is gone")

    with inside(embedded, monkeypatch):
        batch = docllm.Batch("once", prompt=PROMPT, rows=iter(ROWS[:2]), group=embedded.group)
        assert batch.submit().loaded == 2
        assert batch.run(rehearsal=True).status.succeeded == 2
        with pytest.raises(ConfigError, match="an iterator gives its rows once"):
            batch.submit()

        batch = docllm.Batch("broken", prompt=PROMPT, rows=broken(), group=embedded.group)
        with pytest.raises(OSError, match="the source is gone"):
            batch.submit()
        with pytest.raises(docllm.LoadError, match="make the batch anew"):
            batch.run(rehearsal=True)
        assert batch.status.total == 0


def test_an_event_loop_may_run(embedded: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook; a cancelled run stops its agent, and another one goes on."""

    async def notebook() -> docllm.Counts:
        in_2100 = datetime(2100, 1, 1, tzinfo=UTC)
        given: dict[str, Any] = {"prompt": PROMPT, "group": embedded.group}
        late = [{"id": "late", "text": "x"}]
        docllm.Batch("loop", rows=late, not_before=in_2100, **given).submit()
        batch = docllm.Batch("loop", rows=ROWS[:3], **given)
        assert batch.submit().loaded == 3
        run = asyncio.create_task(batch.arun(rehearsal=True))
        while (await batch.astatus()).succeeded < 3:
            assert not run.done()
            await asyncio.sleep(0.1)  # the agent needs the core
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        return batch.status

    with inside(embedded, monkeypatch):
        counts = asyncio.run(notebook())
    assert (counts.succeeded, counts.pending, counts.done) == (3, 1, False)


SCRIPT = """
import docllm

rows = [{{"id": f"id-{{n}}", "text": f"Text {{n}}"}} for n in range(40)]
batch = docllm.Batch("killed", prompt="Summarize: {{document}}", rows=rows, group={group!r})
batch.run(slots=2)
print(batch.status.succeeded)
"""


def test_a_killed_program_loses_nothing(embedded: Deployment) -> None:
    """Its agent ends with it; the same program goes on where it was."""
    llm = embedded.llm("--latency", "0.2")
    script = embedded.folder / "batch.py"
    script.write_text(textwrap.dedent(SCRIPT.format(group=embedded.group)))
    environ = embedded.environ | {
        "DOCLLM_LLM_BASE_URL": llm.url,
        "DOCLLM_LLM_MODEL": "rehearsal",
    }
    with subprocess.Popen([sys.executable, script], cwd=embedded.folder, env=environ) as first:
        until(lambda: len(llm.calls()) >= 5, "the first calls")
        first.send_signal(signal.SIGKILL)

    second = subprocess.run(
        [sys.executable, script],
        cwd=embedded.folder,
        env=environ,
        check=True,
        capture_output=True,
        text=True,
    )

    assert second.stdout.split() == ["40"]
    lines = embedded.producer("export", "--batch", "killed").splitlines()
    assert {orjson.loads(line)["status"] for line in lines} == {"succeeded"}
    assert len(lines) == 40


def test_documents_become_tasks_and_tables(
    embedded: Deployment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A Parquet file holds the results."""
    for name in ("a", "b"):
        (embedded.folder / f"{name}.txt").write_text(f"Document {name}.")
    with inside(embedded, monkeypatch):
        batch = docllm.Batch("papers", prompt=PROMPT, documents="*.txt", group=embedded.group).run(
            rehearsal=True
        )
        batch.to_parquet(tmp_path / "papers.parquet")
        assert [result.result for result in batch.results()] == ["Document a.", "Document b."]
    assert (tmp_path / "papers.parquet").read_bytes()[:4] == b"PAR1"


def test_the_page_runs(embedded: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block of Python of the page runs, one after the other."""
    page = (Path(__file__).parents[3] / "docs/how-to/python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) > 4
    with inside(embedded, monkeypatch):
        names: dict[str, Any] = {}
        for block in blocks:
            exec(compile(block, "python.md", "exec"), names)  # noqa: S102 - a page of our own
        assert names["batch"].status.done
