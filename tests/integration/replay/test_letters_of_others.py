"""Dead letters are for other people's programs, whose clients may lack LZ4."""

from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without saying so
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.integration.support.buses import ANSWER_S, KafkaBus
from tests.integration.support.deployment import Deployment
from tests.servers import Kafka

GZIP, LZ4 = 1, 3
_HEAD, _ATTRIBUTES, _CODEC = 12, 21, 0b111  # of a record batch in a log file


def test_letters_are_gzip_and_older_groups_change_by_topics_apply(
    on_kafka: Deployment, kafka_server: Kafka
) -> None:
    """New groups have letters in gzip. Groups with another codec run, and `apply` changes it."""
    on_kafka.llm("--latency", "0", "--faults", "400=1")
    topic, bus = on_kafka.topics.name("dlq"), on_kafka.bus
    assert isinstance(bus, KafkaBus)
    on_kafka.load(5, "new")
    on_kafka.until_done()
    assert _codecs(kafka_server, topic) == {GZIP}

    _forget_codec(bus, topic)
    compared = on_kafka.producer("topics", "check")
    tested = on_kafka.run("producer", "check", "--group", on_kafka.group)
    on_kafka.load(5, "older")
    on_kafka.until_done()
    codecs = _codecs(kafka_server, topic)
    applied = on_kafka.producer("topics", "apply", "--partitions", "4")

    apply = f"docllm topics apply --group {on_kafka.group}"
    advice = f"to change that: {apply}"
    assert f"topic {topic}: compression.type is producer" in compared
    assert advice in compared
    assert advice in next(line for line in tested.out.splitlines() if " topics:" in line)
    assert codecs == {GZIP, LZ4}
    assert f"{topic}: compression.type set to gzip" in applied
    assert on_kafka.producer("topics", "check") == "topics are as they should be\n"
    assert len(bus.letters(topic)) == 10


def _forget_codec(bus: KafkaBus, topic: str) -> None:
    """Leave the topic as a version made it that named no codec."""
    entry = ConfigEntry("compression.type", None, incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for future in bus.admin.incremental_alter_configs([resource]).values():
        future.result(ANSWER_S)


def _codecs(server: Kafka, topic: str) -> set[int]:
    """Return the codecs of a topic's record batches, as the broker stored them."""
    files = sorted(Path(server.folder).glob(f"data/{topic}-*/*.log"))
    return {codec for file in files for codec in _codecs_of(file.read_bytes())}


def _codecs_of(data: bytes) -> list[int]:
    codecs, start = list[int](), 0
    while size := int.from_bytes(data[start + 8 : start + _HEAD]):
        attributes = data[start + _ATTRIBUTES : start + _ATTRIBUTES + 2]
        codecs.append(int.from_bytes(attributes) & _CODEC)
        start += _HEAD + size
    return codecs
