"""Deaths over other people's records: the inbox, strangers on the task topic, letters that no topic takes."""

import base64
import random

import orjson
from confluent_kafka import Producer

from producer.bus.embedded.log import MAX_RECORD_BYTES
from schemas.task.envelope import Outgoing
from tests.faults.stage import Stage
from tests.integration.deployment import task_line

LINES = 10


def receiving(stage: Stage) -> None:
    """Lines of the inbox become tasks once, and what is none is set aside once, whoever dies over them."""
    deployment = stage.deployment
    deployment.llm("--latency", "0")
    deployment.load(LINES)
    for number, step in enumerate(("batch_made", "ids_taken", "accepted", "quarantined")):
        deployment.bus.write([*_lines(stage, f"b{number}"), *_garbage(stage, "inbox")])
        deployment.expect(f"b{number}", (f"t{one}" for one in range(LINES)))
        stage.crash_agent(f"intake.{step}")
    deployment.bus.write(_garbage(stage, "tasks"))
    stage.crash_agent("quarantine.kept")
    stage.age_orders()
    run = stage.recover()
    assert len(run.quarantined) == 5


def _lines(stage: Stage, batch: str) -> list[Outgoing]:
    topic, headers = stage.deployment.topics.name("inbox"), [("docllm-batch", batch.encode())]
    return [
        Outgoing(topic, None, orjson.dumps(task_line(number)), headers) for number in range(LINES)
    ]


def _garbage(stage: Stage, destination: str) -> list[Outgoing]:
    return [Outgoing(stage.deployment.topics.name(destination), None, b"garbage", [])]


def outsized(stage: Stage) -> None:
    """A letter that its topic refuses becomes a pointer record, and where even that is refused a row of the quarantine, once."""
    deployment = stage.deployment
    deployment.llm("--latency", "0", "--faults", "400=1")
    deployment.load(1)
    _write_large(stage, "with a pointer", value_bytes=100_000)
    stage.crash_agent("publish.refused")
    stage.age_orders()
    run = stage.recover(odd=["P8"])
    assert [one.value for one in run.letters].count(None) == 1
    _write_large(stage, "with a row", value_bytes=300)
    stage.crash_agent("publish.set_aside")
    stage.age_orders()
    run = stage.recover(odd=["P8", "P9"])
    assert len(run.quarantined) == 1


def _write_large(stage: Stage, name: str, *, value_bytes: int) -> None:
    """Write a line under a key that fills the record to the limit of its topic, so that no header has room beside it."""
    chance, topic = random.Random(1), stage.deployment.topics.name("inbox")  # noqa: S311 - bytes that no compression shortens
    filler = base64.b64encode(chance.randbytes(value_bytes)).decode()[:value_bytes]
    value = orjson.dumps({"id": name, "prompt": filler})
    key = chance.randbytes(MAX_RECORD_BYTES - len(value) - 200)
    if stage.kafka:
        producer = Producer(
            {
                "bootstrap.servers": stage.deployment.environ["DOCLLM_KAFKA_BOOTSTRAP"],
                "message.max.bytes": 5 << 20,
            }
        )
        producer.produce(topic, value, key)
        assert producer.flush(30) == 0
    else:
        stage.deployment.bus.write([Outgoing(topic, key, value, [])])
    stage.deployment.expect(f"{stage.deployment.group}-direct", [name])
