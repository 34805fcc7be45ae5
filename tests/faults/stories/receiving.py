"""Deaths over the inbox, foreign records, and dead letters that their topic refuses."""

import base64
import random

import orjson
from confluent_kafka import Producer

from docllm.producer.bus.embedded.log import MAX_RECORD_BYTES
from docllm.schemas.task.record.envelope import Outgoing
from tests.faults.installation import Installation
from tests.integration.support.deployment import task_line

LINES = 10


def receiving(installation: Installation) -> None:
    """An inbox line becomes a task once, a bad line is set aside once, whoever dies over it."""
    deployment = installation.deployment
    deployment.llm("--latency", "0")
    deployment.load(LINES)
    for number, step in enumerate(("batch_made", "ids_taken", "accepted", "quarantined")):
        deployment.bus.write(
            [*_lines(installation, f"b{number}"), *_garbage(installation, "inbox")]
        )
        deployment.expect(f"b{number}", (f"t{line}" for line in range(LINES)))
        installation.crash_agent(f"intake.{step}")
    deployment.bus.write(_garbage(installation, "tasks"))
    installation.crash_agent("quarantine.kept")
    installation.age_orders()
    run = installation.recover()
    assert len(run.quarantined) == 5


def _lines(installation: Installation, batch: str) -> list[Outgoing]:
    topic, headers = (
        installation.deployment.topics.name("inbox"),
        [("docllm-batch", batch.encode())],
    )
    return [
        Outgoing(topic, None, orjson.dumps(task_line(number)), headers) for number in range(LINES)
    ]


def _garbage(installation: Installation, destination: str) -> list[Outgoing]:
    return [Outgoing(installation.deployment.topics.name(destination), None, b"garbage", [])]


def outsized(installation: Installation) -> None:
    """A dead letter that its topic refuses becomes a pointer record, once.

    If the topic refuses that too, it becomes one row of the quarantine.
    """
    deployment = installation.deployment
    deployment.llm("--latency", "0", "--faults", "400=1")
    deployment.load(1)
    _write_large(installation, "with a pointer", value_bytes=100_000)
    installation.crash_agent("publish.refused")
    installation.age_orders()
    run = installation.recover(odd=["P8"])
    assert [letter.value for letter in run.letters].count(None) == 1
    _write_large(installation, "with a row", value_bytes=300)
    installation.crash_agent("publish.set_aside")
    installation.age_orders()
    run = installation.recover(odd=["P8", "P9"])
    assert len(run.quarantined) == 1


def _write_large(installation: Installation, name: str, *, value_bytes: int) -> None:
    """Write a line whose key fills the record to its topic's limit, without room for headers."""
    chance = random.Random(1)  # noqa: S311 - bytes that no compression shortens
    topic = installation.deployment.topics.name("inbox")
    filler = base64.b64encode(chance.randbytes(value_bytes)).decode()[:value_bytes]
    value = orjson.dumps({"id": name, "prompt": filler})
    key = chance.randbytes(MAX_RECORD_BYTES - len(value) - 200)
    if installation.kafka:
        producer = Producer(
            {
                "bootstrap.servers": installation.deployment.environ["DOCLLM_KAFKA_BOOTSTRAP"],
                "message.max.bytes": 5 << 20,
            }
        )
        producer.produce(topic, value, key)
        assert producer.flush(30) == 0
    else:
        installation.deployment.bus.write([Outgoing(topic, key, value, [])])
    installation.deployment.expect(f"{installation.deployment.group}-direct", [name])
