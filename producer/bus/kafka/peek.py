"""Reads timestamps, group offsets and the cluster id with consumers that never subscribe.

No group notices these consumers.

Each request has a handle and a thread of its own, and both are abandoned if they do not return in
time. librdkafka measures waits by the wall clock, so a backward clock jump prolongs a wait in
progress. Some of its closes never return.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from docllm.producer.bus.kafka.errors import UNREACHABLE
from docllm.schemas.clients.kafka import CONSUMER_PROMISES, MAX_FETCH_BYTES, Settings
from docllm.schemas.runtime.clock import Clock

T = TypeVar("T")
PartitionKey = tuple[str, int]

LIMIT_S = 10.0
POLL_S = 0.2
CLOSE_S = 5.0
# Errors after which a partition never gives a record, however long we wait.
LASTING = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._BAD_COMPRESSION,  # noqa: SLF001 - librdkafka's own codes have an underscore
    KafkaError._BAD_MSG,  # noqa: SLF001
}
PARTITION_END = KafkaError._PARTITION_EOF  # noqa: SLF001
# Every cluster has this topic. Metadata of one topic is small, while metadata of all topics may be
# large.
INTERNAL = "__consumer_offsets"
# The smallest prefetch: one record of each partition is wanted.
PREFETCH: Settings = {
    "queued.min.messages": 1,
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 10,
    "fetch.message.max.bytes": 4096,
    "fetch.max.bytes": MAX_FETCH_BYTES,
}


class Peek:
    """Asks Kafka with handles that are no members of a group. Calls may run concurrently."""

    def __init__(self, *, settings: Settings, clock: Clock) -> None:
        self._settings = {**settings, **PREFETCH, **CONSUMER_PROMISES}
        self._clock = clock

    async def cluster_id(self) -> str:
        """Return the id of the cluster, empty when none is known.

        Raises KafkaException, TimeoutError.

        The admin client is not used, because it ends the process when a broker that has just
        started, or stood still, knows of no broker yet. (librdkafka 2.16: its DescribeCluster
        handler then reports neither a result nor an error, and asserts one.)
        """
        return await in_own_thread(self._cluster_id)

    async def oldest_ms(self, positions: Mapping[PartitionKey, int]) -> int | None:
        """Return the smallest timestamp among the first records at or above these offsets.

        Returns None if there is no record. (A transaction marker takes an offset and is no record.)

        Raises KafkaException when the records cannot be read, TimeoutError when a partition does
        not answer in time.
        """
        return await in_own_thread(lambda: self._oldest_ms(positions)) if positions else None

    async def committed(
        self, group_id: str, keys: Sequence[PartitionKey]
    ) -> dict[PartitionKey, int]:
        """Return the offsets that a group has committed. Raises KafkaException, TimeoutError.

        A consumer asks, because the admin client ends the process with a segmentation fault when
        the answer is that the group's coordinator has moved or is loading. (librdkafka 2.16: its
        OffsetFetch handler looks for a group that it does not have.)
        """
        return await in_own_thread(lambda: self._committed(group_id, keys)) if keys else {}

    def _cluster_id(self) -> str:
        """Ask until the time is over, each time with a new handle and half of the time left.

        A handle drops connections when it learns the brokers' names. A question that waits on such
        a connection fails, or gets no answer, and then the handle answers no later one either.
        """
        end_s = self._clock.now_s() + LIMIT_S
        while True:
            try_s = max(POLL_S, (end_s - self._clock.now_s()) / 2)
            with self._opened("docllm-peek") as consumer:
                try:
                    return consumer.list_topics(INTERNAL, timeout=try_s).cluster_id or ""
                except KafkaException as error:
                    if error.args[0].code() not in UNREACHABLE or try_s == POLL_S:
                        raise
                consumer.poll(POLL_S)

    def _oldest_ms(self, positions: Mapping[PartitionKey, int]) -> int | None:
        with self._opened("docllm-peek") as consumer:
            consumer.assign(
                [
                    TopicPartition(topic, number, offset)
                    for (topic, number), offset in positions.items()
                ]
            )
            return min(self._first_timestamps(consumer, set(positions)).values(), default=None)

    def _committed(self, group_id: str, keys: Sequence[PartitionKey]) -> dict[PartitionKey, int]:
        with self._opened(group_id) as consumer:
            partitions = consumer.committed([TopicPartition(*key) for key in keys], timeout=LIMIT_S)
        return {
            (partition.topic, partition.partition): partition.offset
            for partition in partitions
            if partition.error is None and partition.offset >= 0
        }

    def _first_timestamps(
        self, consumer: Consumer, missing: set[PartitionKey]
    ) -> dict[PartitionKey, int]:
        timestamps_ms: dict[PartitionKey, int] = {}
        end_s = self._clock.now_s() + LIMIT_S
        while missing:
            if self._clock.now_s() > end_s:
                raise TimeoutError(
                    f"no record came from {len(missing)} partitions within {LIMIT_S:.0f} s"
                )
            message = consumer.poll(POLL_S)
            error = None if message is None else message.error()
            if error is not None and error.code() in LASTING:
                raise KafkaException(error)
            if message is None or (error is not None and error.code() != PARTITION_END):
                continue
            key = (str(message.topic()), int(message.partition() or 0))
            missing.discard(key)
            if error is None:
                timestamps_ms.setdefault(key, message.timestamp()[1])
        return timestamps_ms

    @contextmanager
    def _opened(self, group_id: str) -> Iterator[Consumer]:
        consumer = Consumer({**self._settings, "group.id": group_id})
        try:
            yield consumer
        finally:
            close(consumer)


async def in_own_thread(ask: Callable[[], T]) -> T:
    """Return the result of `ask`, which runs in a thread of its own.

    Raises TimeoutError when `ask` takes much longer than its own limit.
    """
    answer: Future[T] = Future()
    # From here on a caller that gives up cannot cancel the future under the thread.
    answer.set_running_or_notify_cancel()

    def run() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:  # noqa: BLE001 - the caller gets any error
            answer.set_exception(error)

    threading.Thread(target=run, name="peek", daemon=True).start()
    try:
        async with asyncio.timeout(LIMIT_S + CLOSE_S):
            return await asyncio.wrap_future(answer)
    except TimeoutError as error:
        raise TimeoutError(
            str(error) or f"the client gave no answer within {LIMIT_S + CLOSE_S:.0f} s"
        ) from None


def close(consumer: Consumer) -> None:
    """Close a handle that is no member of a group, or abandon it after CLOSE_S seconds.

    librdkafka may wait for itself forever.
    """
    closing = threading.Thread(target=consumer.close, name="peek-close", daemon=True)
    closing.start()
    closing.join(CLOSE_S)
