"""`archive` through whole programs: to a folder and to an object store, and what follows it."""

import gzip
import shutil
from pathlib import Path

import orjson
import pytest
from sqlalchemy import select

from docllm.producer.retention.manifest import Manifest
from docllm.schemas.ledger import tables
from tests.integration.support.deployment import BATCH, Deployment, task_line
from tests.servers import ObjectStore
from tests.support import json_schemas

TASKS = 7
LEDGER = "docllm-data/ledger.sqlite"


def finished(deployment: Deployment) -> None:
    deployment.llm("--latency", "0", "--faults", "413=0.3")
    deployment.load(TASKS)
    deployment.until_done()


def archived(deployment: Deployment, *options: str) -> dict[str, object]:
    """Archive the batch, and return what the command says of it."""
    said = deployment.producer("archive", "--batch", BATCH, "--json", *options)
    value: dict[str, object] = orjson.loads(said)
    assert json_schemas.faults("archive", value) == []
    return value


def test_an_archived_batch_is_put_away(embedded: Deployment) -> None:
    """The batch is in a folder, out of `status`, still exported, and takes nothing more."""
    finished(embedded)
    to = embedded.folder / "old batches"
    refused = embedded.run("producer", "archive", "--batch", BATCH, "--to", str(to))
    assert refused.code == 2
    assert "does not exist; make it" in refused.err
    to.mkdir()
    exported = embedded.producer("export", "--batch", BATCH)

    said = archived(embedded, "--to", str(to))

    (folder,) = to.iterdir()
    assert said["uri"] == f"{folder.as_uri()}/"
    manifest = Manifest.of_stored((folder / "manifest.json").read_bytes())
    lines = [
        orjson.loads(line)
        for file in manifest.files
        for line in gzip.decompress((folder / file.name).read_bytes()).splitlines()
    ]
    results = [orjson.loads(line) for line in exported.splitlines()]
    assert [(line["id"], line["status"], line["answer"]) for line in lines] == [
        (result["id"], result["status"], result["result"]) for result in results
    ]
    assert archived(embedded, "--to", str(to))["archived_before"] is True

    assert orjson.loads(embedded.producer("status", "--json"))["batches"] == []
    for option in (["--archived"], ["--batch", BATCH]):
        (shown,) = orjson.loads(embedded.producer("status", "--json", *option))["batches"]
        assert (
            json_schemas.faults("status", orjson.loads(embedded.producer("status", "--json"))) == []
        )
        assert shown["archived"]["uri"] == said["uri"]
    listed = embedded.producer("status", "--archived")
    assert f"archived at {said['uri']}" in listed
    assert f"to delete its rows: docllm purge --batch {BATCH} --group" in listed
    assert embedded.producer("export", "--batch", BATCH) == exported
    everything = embedded.run("producer", "export", "--group", embedded.group)
    assert (everything.code, everything.out) == (2, "")
    assert "are archived (1); name one with --batch" in everything.err
    again = embedded.run("producer", "load", str(embedded.write_lines([])), "--batch", BATCH)
    assert (again.code, said["uri"] in again.err) == (4, True)
    plan = orjson.loads(embedded.producer("replay", "--all", "--dry-run", "--json"))["plan"]
    assert (plan["tasks"], plan["closed"]) == (0, said["dead"])


def test_the_export_of_a_purged_batch_names_its_archive(embedded: Deployment) -> None:
    """The batch's results are nowhere else, so an archive that has gone stops the purge."""
    finished(embedded)
    gone = Path(str(archived(embedded, "--to", str(embedded.folder))["uri"]).removeprefix("file:"))
    part = next(gone.glob("part-*"))
    part.unlink()
    refused = embedded.run("producer", "purge", "--batch", BATCH, "--yes")
    assert (refused.code, f"{part} is not there any more" in refused.err) == (4, True)
    shutil.rmtree(gone)
    refused = embedded.run("producer", "purge", "--batch", BATCH, "--yes")
    assert (refused.code, f"{gone}/manifest.json is not there any more" in refused.err) == (4, True)
    said = archived(embedded, "--to", str(embedded.folder))
    assert said["archived_before"] is False
    embedded.producer("purge", "--batch", BATCH, "--yes")

    refused = embedded.run("producer", "export", "--batch", BATCH)

    assert (refused.code, refused.out) == (4, "")
    assert f"its archive is {said['uri']}; to read it: zcat" in refused.err
    embedded.producer("load", str(embedded.write_lines([task_line(0)], "other")))
    left_out = embedded.run("producer", "export", "--group", embedded.group).err
    assert "1 archived batch is left out" in left_out
    shown, _ = orjson.loads(embedded.producer("status", "--json", "--archived"))["batches"]
    assert (shown["archived"]["purged"], shown["counts"]["total"]) == (True, TASKS)


def test_a_batch_with_work_is_refused(embedded: Deployment) -> None:
    """Nothing is written."""
    embedded.load(TASKS)

    refused = embedded.run("producer", "archive", "--batch", BATCH, "--to", str(embedded.folder))

    assert refused.code == 4
    assert "some of its tasks are not final" in refused.err
    assert list(embedded.folder.glob("*/manifest.json")) == []


def test_an_agent_archives_and_purges_by_itself(embedded: Deployment) -> None:
    """The agent archives what is old enough, and deletes its rows; `check` says that it will."""
    finished(embedded)
    to = embedded.folder / "old"
    to.mkdir()
    (embedded.folder / "docllm.toml").write_text(f'[retention]\narchive = "{to}"\npurge = "1s"\n')
    checked = orjson.loads(embedded.run("producer", "check", "--json").out)["checks"]
    (check,) = [check for check in checked if check["name"] == "retention"]

    agent = embedded.agent()
    embedded.until(lambda: purged(embedded, BATCH), "the batch is archived and purged")
    agent.end()

    assert (check["result"], check["message"]) == (
        "ok",
        f"archives to {to.as_uri()}/ after 1 s without a change; then deletes their rows",
    )
    assert len(list(to.glob("*/manifest.json"))) == 1
    assert embedded.ledger.tasks() == []


def purged(deployment: Deployment, batch: str) -> bool:
    (row,) = deployment.ledger._all(select(tables.batch).where(tables.batch.c.name == batch))
    return row.archived_at is not None and row.purged_at is not None


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_an_archive_in_an_object_store(
    embedded: Deployment, object_store: ObjectStore, file_format: str
) -> None:
    """A missing bucket marks nothing; with it, the same command archives the batch."""
    bucket = f"archive-{file_format}"
    embedded.environ |= object_store.environ
    finished(embedded)
    options = ("--to", f"s3://{bucket}/docllm", "--format", file_format)
    refused = embedded.run("producer", "archive", "--batch", BATCH, *options)
    assert refused.code == 3
    assert "bucket that does not exist" in refused.err
    object_store.make_bucket(bucket)

    said = archived(embedded, *options)

    assert str(said["uri"]).startswith(f"s3://{bucket}/docllm/{BATCH}-")
    assert said["tasks"] == TASKS
    assert object_store.environ["AWS_SECRET_ACCESS_KEY"] not in refused.err
    assert f"purged {TASKS} tasks" in embedded.producer("purge", "--batch", BATCH, "--yes")
