"""Reads whole topics of Kafka with a consumer that is assigned and never subscribes.

No group notices it, and it commits nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from docllm.producer.bus.kafka.errors import UNREACHABLE
from docllm.producer.bus.kafka.peek import close
from docllm.producer.ports import Incoming
from docllm.schemas.clients.kafka import (
    CONSUMER_PROMISES,
    MAX_FETCH_BYTES,
    Settings,
    admin_settings,
    raw_headers,
    refusing,
    unreachable,
)
from docllm.schemas.errors import ConfigError
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.settings.config import KafkaConfig

PAGE_RECORDS = 500
PAGE_BYTES = 4 << 20
POLL_S = 0.5
ANSWER_S = 10.0  # the longest wait for an answer about a topic
SILENT_S = 30.0  # after so long without a record, the brokers count as unreachable
NO_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION}
# "earliest": if records are deleted during the reading, it goes on at the first that is left.
OWN: Settings = {
    "group.id": "docllm-reader",
    "auto.offset.reset": "earliest",
    "queued.max.messages.kbytes": 8192,
    "fetch.max.bytes": MAX_FETCH_BYTES,
}


@dataclass(slots=True, kw_only=True, eq=False)
class KafkaTopicReader:
    """TopicReader on Kafka."""

    config: KafkaConfig
    clock: Clock

    async def read(self, topic: str) -> AsyncGenerator[Sequence[Incoming], None]:
        """Yield the records in pages; the records of one partition keep their order."""
        consumer = Consumer({**admin_settings(self.config), **CONSUMER_PROMISES, **OWN})
        try:
            reading = await asyncio.to_thread(self._begin, consumer, topic)
            while reading.open:
                if page := await asyncio.to_thread(self._page, reading):
                    yield page
        except KafkaException as error:
            explained = unreachable if error.args[0].code() in UNREACHABLE else refusing
            raise explained(self.config, str(error.args[0].str())) from None
        finally:
            await asyncio.to_thread(close, consumer)

    def _begin(self, consumer: Consumer, topic: str) -> "_TopicReading":
        metadata = consumer.list_topics(topic, timeout=ANSWER_S).topics[topic]
        if metadata.error is not None and metadata.error.code() not in NO_TOPIC:
            raise KafkaException(metadata.error)
        if not metadata.partitions:
            raise ConfigError(
                f"there is no topic {topic}; name the one that holds the dead letters, "
                "by default <group>.dlq"
            )
        ends: dict[int, int] = {}
        starts: list[TopicPartition] = []
        for number in metadata.partitions:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(topic, number), timeout=ANSWER_S
            )
            if high > low:
                ends[number] = high
                starts.append(TopicPartition(topic, number, low))
        consumer.assign(starts)
        return _TopicReading(consumer, ends, set(ends))

    def _page(self, reading: "_TopicReading") -> list[Incoming]:
        page: list[Incoming] = []
        size, end_s = 0, self.clock.now_s() + SILENT_S
        while reading.open and len(page) < PAGE_RECORDS and size < PAGE_BYTES:
            message = reading.consumer.poll(POLL_S)
            if message is None and self.clock.now_s() > end_s:
                raise unreachable(self.config, f"no record came for {SILENT_S:.0f} s")
            if message is not None and (record := reading.take(message)) is not None:
                page.append(record)
                size += len(record.key or b"") + len(record.value or b"")
        return page


@dataclass(frozen=True, slots=True)
class _TopicReading:
    """The state of reading one topic.

    `ends` are the partitions' ends when the reading began. `open` are the partitions that are not
    read to their end yet.
    """

    consumer: Consumer
    ends: dict[int, int]
    open: set[int]

    def take(self, message: Message) -> Incoming | None:
        """Return the record of a message, or None if it is not part of the reading.

        Partition ends and records written after the reading began are not part of it.
        """
        number, offset = message.partition() or 0, message.offset() or 0
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name
                self.open.discard(number)
            # It concerns a group that is never joined.
            elif not error.retriable() and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise KafkaException(error)
            return None
        if offset + 1 >= self.ends[number]:
            self.open.discard(number)
        return (
            Incoming(number, offset, message.key(), message.value(), raw_headers(message))
            if offset < self.ends[number]
            else None
        )
