"""Apache Kafka as the suites need it."""

import asyncio
import gc
from collections.abc import Mapping, Sequence
from functools import partial
from unittest.mock import patch

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from docllm.agent.consumer.kafka.source import KafkaSource
from docllm.agent.consumer.known_topics import StoredIdsReader
from docllm.agent.ports import Source
from docllm.producer.bus.kafka.admin import KafkaTopicAdmin
from docllm.producer.bus.kafka.publisher import KafkaPublisher
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.config import KafkaConfig
from tests.contract.support.parts import Parts
from tests.support.doubles import double_of

SESSION_S = 10.0
SETTING_S = 60.0


def parts(bootstrap: str, protocol: str = "classic") -> Parts:
    """Return the factories for one broker and one group protocol."""
    config, clock = KafkaConfig(bootstrap, {"group.protocol": protocol}), SystemClock()
    known: dict[str, str] = {}
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    shared = KafkaTopicAdmin(config=config, clock=clock)

    async def source(names: Sequence[str], group_id: str) -> Source:
        return KafkaSource(
            config=config,
            topics=names,
            group_id=group_id,
            topic_ids=double_of(StoredIdsReader, current=lambda: known),
            admin=shared,
            clock=clock,
        )

    async def publisher() -> KafkaPublisher:
        return KafkaPublisher(config=config, clock=clock)

    async def admin() -> KafkaTopicAdmin:
        return KafkaTopicAdmin(config=config, clock=clock)

    async def delete_topic(topic: str) -> None:
        await asyncio.wrap_future(client.delete_topics([topic], operation_timeout=10)[topic])

    async def delete_offsets(group_id: str) -> None:
        try:
            await asyncio.wrap_future(client.delete_consumer_groups([group_id])[group_id])
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise

    return Parts(
        source=source,
        publisher=publisher,
        admin=admin,
        kill=_kill,
        delete_topic=delete_topic,
        delete_offsets=delete_offsets,
        set_offsets=partial(_set_offsets, client),
        session_s=SESSION_S,
        known=known,
    )


async def _set_offsets(
    client: AdminClient, group_id: str, offsets: Mapping[tuple[str, int], int]
) -> None:
    """Commit these offsets; a broker that has just started may need some seconds to take them.

    It answers with an error for each partition, and not for the request.
    """
    wanted = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
    request = ConsumerGroupTopicPartitions(group_id, wanted)
    async with asyncio.timeout(SETTING_S):
        while True:
            asked = client.alter_consumer_group_offsets([request])[group_id]
            answer = await asyncio.wrap_future(asked)
            if all(answered.error is None for answered in answer.topic_partitions):
                return
            await asyncio.sleep(0.2)


async def _kill(source: Source) -> None:
    """End the thread at once.

    A handle that is garbage-collected unclosed stops its heartbeats and does not notify the group.
    """

    def die(_: Consumer) -> None:
        raise SystemExit

    assert isinstance(source, KafkaSource)
    assert source._member is not None
    reader, _ = source._member
    # An exception hook that kept the exception would keep the handle too, through the frames.
    with patch("threading.excepthook", lambda _: None):
        reader.tell(die)
        await asyncio.to_thread(reader._thread.join)
    gc.collect()
