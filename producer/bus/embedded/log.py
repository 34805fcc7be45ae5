"""Appends and reads records of the bus.

A partition's offsets have no gaps, except below its low watermark.
"""

import random
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from docllm.producer.bus.embedded.file import BusFile
from docllm.producer.bus.murmur2 import partition_of
from docllm.producer.ports import Refusal
from docllm.schemas.task.record.envelope import Outgoing, RawHeaders
from docllm.schemas.task.record.topics import RESULTS

MAX_RECORD_BYTES = 4 << 20
# Of the topic of results, which nobody reads in this file, so that it would only grow. On Kafka,
# whoever reads it says how long its records stay.
RESULTS_KEPT = 10_000  # in each partition
# The approximate size limit of one transaction of appends, because other writers wait for it.
_CHUNK_ROWS = 500
_CHUNK_BYTES = 4 << 20
_OFFSET_BITS = 40
_NAME_AND_VALUE = struct.Struct("<Hi")
_NOW_MS = "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"


@dataclass(frozen=True, slots=True)
class Stored:
    """One record as it is stored in the file."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: RawHeaders

    @property
    def size_bytes(self) -> int:
        """The size of key and value in bytes."""
        return len(self.key or b"") + len(self.value or b"")


@dataclass(slots=True)
class _TopicPartition:
    id: int
    high: int


def first_place(partition_id: int) -> int:
    """Return the place of a partition's offset 0."""
    return partition_id << _OFFSET_BITS


def chunks(records: Sequence[Outgoing]) -> Iterator[slice]:
    """Cut records into short transactions, so that no other writer waits for long."""
    start, size = 0, 0
    for index, record in enumerate(records):
        if index - start == _CHUNK_ROWS or size > _CHUNK_BYTES:
            yield slice(start, index)
            start, size = index, 0
        size += len(record.value or b"")
    if start < len(records):
        yield slice(start, len(records))


def append(file: BusFile, records: Sequence[Outgoing], rng: random.Random) -> list[Refusal | None]:
    """Append records in one transaction; return for each None, or why it was refused.

    None means that the record is durable.
    """
    with file.write() as db:
        return _Appender(db, rng=rng).append(records)


class _Appender:
    """One transaction of appends; it looks up each topic's partitions once."""

    def __init__(self, db: sqlite3.Connection, *, rng: random.Random) -> None:
        self._db = db
        self._rng = rng
        self._topics: dict[str, list[_TopicPartition]] = {}
        self._now_ms: int = db.execute(_NOW_MS).fetchone()[0]

    def append(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        rows: list[tuple[int, int, bytes | None, bytes | None, bytes]] = []
        answers = [self._place(record, rows) for record in records]
        self._db.executemany("INSERT INTO record VALUES (?, ?, ?, ?, ?)", rows)
        touched = [
            (partition.high, partition.id)
            for partitions in self._topics.values()
            for partition in partitions
        ]
        self._db.executemany("UPDATE partition SET high=? WHERE id=?", touched)
        for topic, partitions in self._topics.items():
            if topic.endswith(f".{RESULTS}"):
                self._trim(partitions)
        return answers

    def _trim(self, partitions: Sequence[_TopicPartition]) -> None:
        for partition in partitions:
            if (low := partition.high - RESULTS_KEPT) > 0:
                self._db.execute(
                    "UPDATE partition SET low=? WHERE id=? AND low<?", (low, partition.id, low)
                )
                start = first_place(partition.id)
                self._db.execute(
                    "DELETE FROM record WHERE place>=? AND place<?", (start, start + low)
                )

    def _place(
        self, record: Outgoing, rows: list[tuple[int, int, bytes | None, bytes | None, bytes]]
    ) -> Refusal | None:
        headers = pack_headers(record.headers)
        size = len(record.key or b"") + len(record.value or b"") + len(headers)
        if size > MAX_RECORD_BYTES:
            return Refusal(
                f"the record has {size} bytes, a record may have {MAX_RECORD_BYTES}", permanent=True
            )
        partitions = self._partitions(record.topic)
        if not partitions:
            return Refusal(
                f"topic {record.topic} does not exist; run `docllm topics apply`",
                permanent=False,
            )
        chosen = (
            self._rng.randrange(len(partitions))
            if record.key is None
            else partition_of(record.key, len(partitions), record.salt)
        )
        partition = partitions[chosen]
        rows.append(
            (
                first_place(partition.id) + partition.high,
                self._now_ms,
                record.key,
                record.value,
                headers,
            )
        )
        partition.high += 1
        return None

    def _partitions(self, topic: str) -> list[_TopicPartition]:
        if topic not in self._topics:
            rows = self._db.execute(
                "SELECT p.id, p.high FROM partition p JOIN topic t USING (topic_id)"
                " WHERE t.name=? ORDER BY p.number",
                (topic,),
            )
            self._topics[topic] = [_TopicPartition(*row) for row in rows]
        return self._topics[topic]


def read_records(
    file: BusFile, partition_id: int, position: int, *, records: int, size_bytes: int
) -> list[Stored]:
    """Return records from `position` on, in order.

    The result has at most `records` records and about `size_bytes` bytes, but at least one record
    if the record at `position` exists. It is empty when that record was deleted or is not yet
    written; records behind a gap are never returned.
    """
    start = first_place(partition_id)
    rows = file.each(
        "SELECT place, timestamp_ms, key, value, headers FROM record"
        " WHERE place>=? AND place<? ORDER BY place",
        (start + position, start + position + records),
    )
    stored: list[Stored] = []
    for place, timestamp_ms, key, value, headers in rows:
        stored.append(Stored(place - start, timestamp_ms, key, value, unpack_headers(headers)))
        size_bytes -= stored[-1].size_bytes
        if size_bytes <= 0:
            break
    return stored if stored and stored[0].offset == position else []


def pack_headers(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Return headers as bytes.

    Each header is the length of its name, the length of its value (-1 for a null value), the name,
    the value.
    """
    packed = bytearray()
    for name, value in headers:
        raw = name.encode()
        packed += _NAME_AND_VALUE.pack(len(raw), -1 if value is None else len(value))
        packed += raw
        packed += value or b""
    return bytes(packed)


def unpack_headers(packed: bytes) -> list[tuple[str, bytes | None]]:
    """Return the headers that `pack_headers` packed."""
    headers: list[tuple[str, bytes | None]] = []
    position = 0
    while position < len(packed):
        name_bytes, value_bytes = _NAME_AND_VALUE.unpack_from(packed, position)
        value_at = position + _NAME_AND_VALUE.size + name_bytes
        name = packed[position + _NAME_AND_VALUE.size : value_at].decode()
        position = value_at + max(value_bytes, 0)
        headers.append((name, None if value_bytes < 0 else packed[value_at:position]))
    return headers
