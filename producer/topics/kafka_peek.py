"""Reads single records' timestamps and groups' offsets with consumers that never subscribe, so no group notices."""

import threading
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, TopicPartition

from schemas.clock import Clock
from schemas.kafka_client import CONSUMER_PROMISES, Settings

LIMIT_S = 10.0
POLL_S = 0.2
CLOSE_S = 5.0


class Peek:
    """One consumer handle, opened at its first use. Calls may come from any thread, one at a time."""

    def __init__(self, *, settings: Settings, clock: Clock) -> None:
        # The smallest prefetch: one record of each partition is wanted.
        prefetch = {"queued.min.messages": 1, "fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 10, "fetch.message.max.bytes": 4096}
        self._settings = {**settings, **prefetch, **CONSUMER_PROMISES, "group.id": "docllm-peek"}
        self._clock = clock
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None

    def oldest_ms(self, positions: Mapping[tuple[str, int], int]) -> int | None:
        """Return the smallest timestamp among the first records at or above these offsets; None for no offsets.

        Every partition must have such a record. Raises TimeoutError when one does not come in time.
        """
        with self._lock:
            if not positions:
                return None
            consumer = self._opened()
            consumer.assign([TopicPartition(topic, number, offset) for (topic, number), offset in positions.items()])
            try:
                return min(self._first_timestamps(consumer, set(positions)).values())
            finally:
                consumer.unassign()

    def committed(self, group_id: str, keys: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the offsets that a group has committed. Raises KafkaException.

        A consumer asks and not the admin client: that one ends the process with a segmentation fault when the answer is that the
        group's coordinator has moved or is loading (librdkafka 2.16: its OffsetFetch handler looks for a group that it has not).
        """
        if not keys:
            return {}
        consumer = Consumer({**self._settings, "group.id": group_id})
        try:
            found = consumer.committed([TopicPartition(*key) for key in keys], timeout=LIMIT_S)
        finally:
            close(consumer)
        return {(one.topic, one.partition): one.offset for one in found if one.error is None and one.offset >= 0}

    def close(self) -> None:
        """Close the handle."""
        with self._lock:
            if self._consumer is not None:
                close(self._consumer)
                self._consumer = None

    def _first_timestamps(self, consumer: Consumer, wanted: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        end_s = self._clock.now_s() + LIMIT_S
        while missing := wanted - found.keys():
            if self._clock.now_s() > end_s:
                raise TimeoutError(f"no record came from {len(missing)} partitions within {LIMIT_S:.0f} s")
            message = consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                found.setdefault((str(message.topic()), int(message.partition() or 0)), message.timestamp()[1])
        return found

    def _opened(self) -> Consumer:
        if self._consumer is None:
            self._consumer = Consumer(self._settings)
        return self._consumer


def close(consumer: Consumer) -> None:
    """Close a handle that is no member of a group, or leave it after some seconds: librdkafka may wait for itself for ever."""
    closing = threading.Thread(target=consumer.close, name="peek-close", daemon=True)
    closing.start()
    closing.join(CLOSE_S)
