"""Reads every record and every commit from the beginning on, beside docllm.

It belongs to no group and commits nothing. Commits are read from `__consumer_offsets`, so that none
is missed and each has its time.
"""

import struct
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from docllm.schemas.task.record import header_names
from tests.integration.support.buses import headers_of

OFFSETS = "__consumer_offsets"
CHECK_EVERY_S, LIST_S = 0.2, 2.0
BATCH = 500
COMMIT_KEYS = (0, 1)  # versions of a key of a commit; others are members and groups


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """A record.

    `key` and `value` are kept if `keep` has the topic, and of the headers only docllm's and
    the one that names a span.
    """

    topic: str
    number: int
    offset: int
    at_s: float
    headers: dict[str, bytes]
    key: bytes | None = None
    value: bytes | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """An offset that a group committed."""

    group: str
    topic: str
    number: int
    offset: int
    at_s: float


class Watch:
    """Reads until it is asked to stop.

    `topics` are docllm's; of those in `keep`, key and value are kept too.
    """

    def __init__(self, *, bootstrap: str, topics: Collection[str], keep: Collection[str]) -> None:
        self.records: list[SeenRecord] = []
        self.commits: list[Committed] = []
        self._topics = {*topics, OFFSETS}
        self._keep = keep
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": "docllm-test-watch",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 1000,
            "log_level": 0,
            "error_cb": lambda _: None,
        }
        self._consumer = Consumer(settings)
        self._assigned: set[tuple[str, int]] = set()
        self._positions: dict[tuple[str, int], int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def begin(self) -> None:
        """Start to read."""
        self._thread.start()

    def end(self) -> None:
        """Read the present records, and stop."""
        self._stop.set()
        self._thread.join()
        self._drain()
        self._consumer.close()

    def read_to(self, topic: str, number: int) -> int:
        """Return the offset up to which a partition was read."""
        return self._positions.get((topic, number), 0)

    def _run(self) -> None:
        listed = 0
        while not self._stop.is_set():
            if listed <= 0:
                self._assign()
                listed = round(LIST_S / CHECK_EVERY_S)
            listed -= 1
            self._read(CHECK_EVERY_S)

    def _drain(self) -> None:
        """Read on until no record comes any more."""
        self._assign()
        empty = 0
        while empty < 2 / CHECK_EVERY_S:
            empty = 0 if self._read(CHECK_EVERY_S) else empty + 1

    def _read(self, timeout_s: float) -> int:
        batch = self._consumer.consume(BATCH, timeout_s)
        for message in batch:
            if message.error() is None:
                self._take(message)
        return len(batch)

    def _assign(self) -> None:
        """Assign the new partitions."""
        try:
            listed = self._consumer.list_topics(timeout=5).topics
        except KafkaException:
            return
        present = {
            (name, number)
            for name in self._topics
            if name in listed
            for number in listed[name].partitions
        }
        fresh = present - self._assigned
        if fresh:
            self._consumer.incremental_assign(
                [TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in sorted(fresh)]
            )
            self._assigned |= fresh

    def _take(self, message: Message) -> None:
        topic, number, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert number is not None
        assert offset is not None
        at_s = message.timestamp()[1] / 1000
        self._positions[topic, number] = offset + 1
        if topic == OFFSETS:
            self.commits += _commit(message.key(), message.value(), at_s)
            return
        headers = {
            name: value or b""
            for name, value in headers_of(message)
            if name.startswith("docllm-") or name == header_names.TRACEPARENT
        }
        kept = (message.key(), message.value()) if topic in self._keep else (None, None)
        self.records.append(SeenRecord(topic, number, offset, at_s, headers, *kept))


def _commit(key: bytes | None, value: bytes | None, at_s: float) -> Iterator[Committed]:
    """Yield the commit in a record of `__consumer_offsets`, if it holds one.

    The key has group, topic and partition; the value begins with the offset.
    """
    if not key or not value or struct.unpack_from(">h", key)[0] not in COMMIT_KEYS:
        return
    group, place = _text(key, 2)
    topic, place = _text(key, place)
    (number,) = struct.unpack_from(">i", key, place)
    (offset,) = struct.unpack_from(">q", value, 2)
    yield Committed(group, topic, number, offset, at_s)


def _text(raw: bytes, place: int) -> tuple[str, int]:
    (length,) = struct.unpack_from(">h", raw, place)
    end = place + 2 + length
    return raw[place + 2 : end].decode(), end
