"""A bus seen from outside: positions, dead letters, and foreign records.

No client in here belongs to docllm's group.
"""

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported without saying so
    AdminClient,
    OffsetSpec,
)

from docllm.producer.bus.embedded import log, topics
from docllm.producer.bus.embedded.file import BusFile
from docllm.producer.bus.embedded.publisher import EmbeddedPublisher
from docllm.producer.ports import Refusal
from docllm.schemas.task.record.envelope import Outgoing, RawHeaders
from tests.integration.support.programs import until
from tests.invariants.evidence import Death, Letter, Position

ANSWER_S = 240.0  # also of a machine that stands still for a minute or two
EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]


class Bus(Protocol):
    """A test's own access to the bus, beside docllm's."""

    def positions(self, group_id: str, topic: str) -> list[Position]:
        """Return each partition's watermarks and the group's committed offset."""
        ...

    def topics(self, prefix: str) -> list[str]:
        """Return the topics with this prefix."""
        ...

    def letters(self, topic: str) -> list[Letter]:
        """Return the records of a dead-letter topic."""
        ...

    def copies(self, topic: str) -> list[Outgoing]:
        """Return the records of a topic, as a tool that copies them would write them."""
        ...

    def write(self, records: Sequence[Outgoing]) -> None:
        """Write records as a producer that does not know docllm."""
        ...


class EmbeddedBus:
    """The bus file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def positions(self, group_id: str, topic: str) -> list[Position]:
        """Read the positions from the file."""
        file = BusFile(self._path)
        try:
            rows = topics._positions(file, group_id, [topic])
        finally:
            file.close()
        return [
            Position(name, number, low, high, committed)
            for name, number, _, low, high, committed in rows
        ]

    def topics(self, prefix: str) -> list[str]:
        """Read the topic names."""
        file = BusFile(self._path)
        try:
            return [
                name
                for (name,) in file.all("SELECT name FROM topic ORDER BY name")
                if name.startswith(prefix)
            ]
        finally:
            file.close()

    def letters(self, topic: str) -> list[Letter]:
        """Read the topic from its low watermarks on."""
        return [letter(record.key, record.value, record.headers) for record in self.copies(topic)]

    def copies(self, topic: str) -> list[Outgoing]:
        """Read the topic from its low watermarks on."""
        file = BusFile(self._path)
        try:
            ids = file.all(
                "SELECT p.id, p.low FROM partition p JOIN topic t USING (topic_id) WHERE t.name=?",
                (topic,),
            )
            return [
                Outgoing(topic, record.key, record.value, with_values(record.headers))
                for key, low in ids
                for record in log.read_records(file, key, low, records=100_000, size_bytes=1 << 30)
            ]
        finally:
            file.close()

    def write(self, records: Sequence[Outgoing]) -> None:
        """Write through the publisher, which takes any record; what it had no time for, again."""
        left = list(records)

        def are_taken() -> bool:
            answers = asyncio.run(self._write(left))
            assert not [answer for answer in answers if answer is not None and answer.permanent]
            left[:] = [record for record, answer in zip(left, answers, strict=True) if answer]
            return not left

        until(are_taken, "the bus to take all records")

    async def _write(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        publisher = EmbeddedPublisher(self._path)
        try:
            return list(await publisher.publish(records))
        finally:
            await publisher.close()


class KafkaBus:
    """Kafka, through a client with default settings."""

    def __init__(self, bootstrap: str) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "error_cb": _ignore,
        }
        self.admin = AdminClient(self._settings)

    def positions(self, group_id: str, topic: str) -> list[Position]:
        """Ask the broker."""
        partitions = [TopicPartition(topic, partition.id) for partition in self._partitions(topic)]
        lows, highs = self._offsets(partitions, EARLIEST), self._offsets(partitions, LATEST)
        committed = self._committed(group_id, partitions)
        return [
            Position(topic, number, lows[number], highs[number], committed.get(number))
            for number in lows
        ]

    def topics(self, prefix: str) -> list[str]:
        """Ask the broker."""
        return sorted(
            name
            for name in self.admin.list_topics(timeout=ANSWER_S).topics
            if name.startswith(prefix)
        )

    def letters(self, topic: str) -> list[Letter]:
        """Read the topic from its beginning to its end."""
        return [letter(record.key, record.value, record.headers) for record in self.copies(topic)]

    def copies(self, topic: str) -> list[Outgoing]:
        """Read the topic from its beginning to its end."""
        return [
            Outgoing(topic, record.key(), record.value(), with_values(headers_of(record)))
            for record in self._records(topic)
        ]

    def write(self, records: Sequence[Outgoing]) -> None:
        """Publish, and wait for the delivery reports."""
        failed: list[object] = []
        producer = Producer({**self._settings, "linger.ms": 5})
        for record in records:
            producer.produce(
                record.topic,
                record.value,
                record.key,
                headers=list(record.headers),
                on_delivery=lambda error, _: failed.append(error),
            )
        assert producer.flush(ANSWER_S) == 0
        assert [error for error in failed if error is not None] == []

    def delete_records(self, topic: str) -> None:
        """Delete every record that the topic has now."""
        ends = [
            TopicPartition(position.topic, position.number, position.high)
            for position in self.positions("nobody", topic)
        ]
        for future in self.admin.delete_records(ends).values():
            future.result(ANSWER_S)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records."""
        for future in self.admin.delete_topics([topic]).values():
            future.result(ANSWER_S)

    def delete_group(self, group_id: str) -> bool:
        """Forget every committed offset of a group; return False while it has members."""
        try:
            self.admin.delete_consumer_groups([group_id])[group_id].result(ANSWER_S)
        except KafkaException:
            return False
        return True

    def _partitions(self, topic: str) -> Sequence[TopicPartitionInfo]:
        asked = self.admin.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_S)
        described = asked[topic].result(ANSWER_S)
        return sorted(described.partitions, key=lambda partition: partition.id)

    def _offsets(self, partitions: Iterable[TopicPartition], spec: OffsetSpec) -> dict[int, int]:
        asked = self.admin.list_offsets(dict.fromkeys(partitions, spec))
        return {
            partition.partition: future.result(ANSWER_S).offset
            for partition, future in asked.items()
        }

    def _committed(self, group_id: str, partitions: list[TopicPartition]) -> dict[int, int]:
        request = ConsumerGroupTopicPartitions(group_id, partitions)
        (future,) = self.admin.list_consumer_group_offsets([request]).values()
        return {
            topic_partition.partition: topic_partition.offset
            for topic_partition in future.result(ANSWER_S).topic_partitions
            if topic_partition.offset >= 0
        }

    def _records(self, topic: str) -> list[Message]:
        places = self.positions("nobody", topic)
        wanted = sum(place.high - place.low for place in places)
        consumer = Consumer(
            {
                **self._settings,
                "group.id": "test-reader",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(topic, place.number, place.low) for place in places])
        messages: list[Message] = []
        try:
            while len(messages) < wanted:
                batch = consumer.consume(wanted - len(messages), ANSWER_S)
                assert batch, f"{len(messages)} of {wanted} records of {topic} came"
                messages += [message for message in batch if message.error() is None]
        finally:
            consumer.close()
        return messages


def headers_of(record: Message) -> list[tuple[str, bytes | None]]:
    """Return a record's headers; the client's own types allow what no broker sends."""
    return cast("list[tuple[str, bytes | None]]", record.headers() or [])


def with_values(headers: RawHeaders) -> list[tuple[str, bytes]]:
    """Return the headers that have a value."""
    return [(name, value) for name, value in headers if value is not None]


def letter(key: bytes | None, value: bytes | None, headers: RawHeaders) -> Letter:
    """Return a record of the dead-letter topic in the checker's form."""
    named = {name: value.decode() for name, value in headers if value is not None}
    task, quarantined = named.get("docllm-task"), named.get("docllm-quarantine")
    death = Death(
        int(named.get("docllm-fence", "0")),
        named.get("docllm-disposition", ""),
        named.get("docllm-error-class", ""),
    )
    return Letter(
        key, value, int(task) if task else None, int(quarantined) if quarantined else None, death
    )


def _ignore(_error: object) -> None:
    """Drop the client's messages; a test that needs the broker notices failures itself."""
