"""Deaths of the producer's commands: load, serve, export, cancel, migrate, topics apply."""

import signal
from collections.abc import Mapping
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import orjson
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from sqlalchemy import update

from docllm.producer.bus.embedded import topics
from docllm.producer.bus.embedded.file import BusFile
from docllm.producer.bus.topic_family import TOPIC_SETTINGS
from docllm.schemas.ledger.sql import utc_after
from docllm.schemas.ledger.tables import task_result
from docllm.schemas.task.states import Status
from tests.faults.installation import Installation
from tests.integration.support.buses import KafkaBus
from tests.integration.support.deployment import BATCH, task_line
from tests.integration.support.installations import PARTITIONS
from tests.integration.support.programs import Program, until

FEW, CHUNKS = 40, 3
PAGES = 3  # of a cancel
LIMIT_MS = "1000000"  # a topic's retention that would delete work that waits


def loading(installation: Installation) -> None:
    """After a cut-off load, a second load of the file ends with its tasks, each called once."""
    deployment = installation.deployment
    llm = deployment.llm("--latency", "0")
    chunk = 1000 if installation.kafka else 200
    each, most = (CHUNKS * chunk, CHUNKS) if installation.long else (FEW, 1)
    deaths = {
        "batch_made": 1,
        "ids_taken": most,
        "accepted": most,
        "published": most,
        "shrunk": most,
    }
    for number, (step, times) in enumerate(deaths.items(), 1):
        path = _lines(installation, number * each)
        installation.crash_producer(f"load.{step}", "load", str(path), most=times)
    deployment.load(number * each)
    assert deployment.ledger.loaded(BATCH) == number * each
    installation.age_orders()
    installation.recover("--slots", "200")
    assert len(llm.calls()) == number * each


def posting(installation: Installation) -> None:
    """After a server's death in a request, the same request loads the rest, and then closes."""
    deployment = installation.deployment
    llm = deployment.llm("--latency", "0")
    body = Path(_lines(installation, FEW)).read_bytes()
    listen = ("serve", "--group", deployment.group, "--listen", "127.0.0.1:0")
    for point in ("load.accepted", "serve.posted"):
        installation.crash(point, "producer", *listen, then=partial(_post, body=body))
        assert BATCH in {batch["name"] for batch in deployment.status()["batches"]}
    server = deployment.start("producer", *listen)
    assert _post(server, body) == {"batch": BATCH, "loaded": 0, "twins": FEW, "rejected": []}
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    deployment.expect(BATCH, (f"t{number}" for number in range(FEW)))
    installation.age_orders()
    installation.recover("--slots", "200")
    assert len(llm.calls()) == FEW


def uploading(installation: Installation) -> None:
    """A batch of an uploaded file is loaded by the next server if its own one dies."""
    deployment = installation.deployment
    llm = deployment.llm("--latency", "0")
    body = Path(_lines(installation, FEW)).read_bytes()
    listen = ("serve", "--group", deployment.group, "--listen", "127.0.0.1:0")
    installation.crash("serve.batch_made", "producer", *listen, then=partial(_upload, body=body))
    installation.crash("load.accepted", "producer", *listen)
    server = deployment.start("producer", *listen)
    _ask(server, "/livez")
    (batch,) = (_ask(server, "/openai/v1/batches") or {})["data"]
    name = f"openai-{batch['id']}"
    deployment.producer("wait", "--batch", name, "--timeout", "1s", code=6)
    deployment.until(lambda: deployment.ledger.loaded(name) == FEW, "the batch to be loaded")
    deployment.expect(name, (f"t{number}" for number in range(FEW)))
    installation.age_orders()
    installation.recover("--slots", "200")
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert len(llm.calls()) == FEW


def _upload(server: Program, body: bytes) -> None:
    """Upload a file and make a batch of it."""
    parts = {"purpose": b"batch", 'file"; filename="a.jsonl': body}
    form = b"".join(
        b'--B\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), part)
        for name, part in parts.items()
    )
    kind = {"Content-Type": "multipart/form-data; boundary=B"}
    file = _ask(server, "/openai/v1/files", form + b"--B--\r\n", kind) or {}
    batch = {"input_file_id": file["id"], "endpoint": "/v1/chat/completions"}
    _ask(server, "/openai/v1/batches", orjson.dumps(batch | {"completion_window": "24h"}))


def _post(server: Program, body: bytes) -> dict[str, Any] | None:
    """Post lines and close their batch; return the answer, None if the server died of it."""
    return _ask(server, f"/v1/tasks?batch={BATCH}&close=true", body)


def _ask(
    server: Program, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> dict[str, Any] | None:
    """Return the server's answer; None if it died of the request, or answers no JSON."""
    until(lambda: "/v1" in server.err or not server.running, "the server to listen")
    url = next(word for word in server.err.split() if word.endswith("/v1"))
    request = Request(url.removesuffix("/v1") + path, body, headers or {})  # noqa: S310 - our own
    try:
        with urlopen(request, timeout=60) as answer:  # noqa: S310 - our own
            read: dict[str, Any] = orjson.loads(answer.read())
            return read
    except (OSError, HTTPException, orjson.JSONDecodeError):
        return None


def exporting(installation: Installation) -> None:
    """New results whose file is whole are new again if the export dies before it notes them."""
    deployment = installation.deployment
    deployment.llm("--latency", "0")
    deployment.load(FEW)
    installation.recover("--slots", "200")
    installation.write(update(task_result).values(created_at=utc_after(-100.0)))
    only_new = ("export", "--only-new")
    path = deployment.folder / "new.jsonl"
    installation.crash_producer("export.whole", *only_new, str(path))
    assert len(path.read_text().splitlines()) == FEW
    assert len(deployment.producer(*only_new).splitlines()) == FEW
    assert deployment.producer(*only_new) == ""


def cancelling(installation: Installation) -> None:
    """A second cancel, or any agent, completes a cut-off cancel; no task of the batch runs."""
    deployment = installation.deployment
    llm = deployment.llm("--latency", "0")
    deployment.load(500 * PAGES - 100)
    installation.crash_producer("cancel.marked", "cancel", "--batch", BATCH)
    installation.crash_producer("cancel.page_cancelled", "cancel", "--batch", BATCH)
    assert 0 < deployment.ledger.counts()["cancelled"] < 500 * PAGES - 100
    installation.crash_agent("cancel.page_cancelled", most=PAGES)
    run = installation.recover()
    assert {task.status for task in run.tasks} == {Status.CANCELLED}
    assert llm.calls() == []


def preparing(installation: Installation) -> None:
    """Tables and topics that are half made are made whole by the same command, and then work."""
    deployment = installation.deployment
    partitions = ("--replication-factor", "1", "--partitions")
    installation.crash_producer("migrate.revision", "migrate")
    installation.crash_producer("migrate.step_taken", "migrate", most=25)
    installation.crash_producer("migrate.upgraded", "migrate")
    deployment.producer("migrate")
    installation.crash_producer("topics.created", "topics", "apply", *partitions, "2", most=4)
    deployment.producer("topics", "apply", *partitions, "2")
    installation.crash_producer("topics.grown", "topics", "apply", *partitions, PARTITIONS, most=4)
    _change_settings(installation)
    installation.crash_producer("topics.configured", "topics", "apply", *partitions, PARTITIONS)
    deployment.producer("topics", "apply", *partitions, PARTITIONS)
    deployment.llm("--latency", "0")
    deployment.load(FEW)
    installation.recover()


def _change_settings(installation: Installation) -> None:
    """Give the task topic a limit that would delete work that waits."""
    bus, topic = installation.deployment.bus, installation.deployment.topics.name("tasks")
    if isinstance(bus, KafkaBus):
        entry = ConfigEntry("retention.ms", LIMIT_MS, incremental_operation=AlterConfigOpType.SET)
        (changed,) = bus.admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]
        ).values()
        changed.result(30)
        # The controller has the change; a busy broker shows it later.
        installation.deployment.until(
            lambda: _retention_ms(bus.admin, topic) == LIMIT_MS, "the broker shows the setting"
        )
        return
    file = BusFile(installation.deployment.folder / "docllm-data" / "bus.sqlite")
    topics.configure(file, topic, TOPIC_SETTINGS | {"retention.ms": LIMIT_MS})
    file.close()


def _retention_ms(admin: AdminClient, topic: str) -> str | None:
    (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    entry: ConfigEntry = answer.result(30)["retention.ms"]
    return entry.value


def _lines(installation: Installation, count: int) -> str:
    return str(installation.deployment.write_lines(task_line(number) for number in range(count)))
