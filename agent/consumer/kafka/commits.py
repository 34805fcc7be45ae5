"""Commits watermarks to Kafka.

Marks come from the event loop; everything else runs on the consumer thread.

Offsets are committed explicitly, with the leader epoch, and only for partitions that are owned
under the same epoch at this moment. A broker accepts a commit for a partition that has moved, and
the commit would overwrite the new owner's.
"""

import logging
import threading
from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from docllm.agent.consumer.kafka.assignment import Assignment
from docllm.agent.consumer.kafka.positions import PartitionKey
from docllm.agent.ports import Partition
from docllm.producer.bus.kafka.errors import level
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock

log = logging.getLogger(__name__)

COMMIT_EVERY_S = 1.0
# The group has moved on or is about to; the partition's next owner then commits the offset.
MOVED_ON = {
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._NO_OFFSET,  # noqa: SLF001 - librdkafka's own codes are spelled with an underscore
}


class Commits:
    """One handle's commits: at most one is under way, apart from those of a revoke."""

    def __init__(self, *, assignment: Assignment, clock: Clock) -> None:
        self._assignment = assignment
        self._clock = clock
        self._lock = threading.Lock()
        self._marks: dict[Partition, int] = {}
        self._sent: dict[PartitionKey, Partition] = {}
        self._next_at_s = 0.0
        self._waiting: list[Callable[[], None]] = []
        self._sent_for: list[Callable[[], None]] = []

    def mark(self, partition: Partition, watermark: int) -> None:
        """Let this watermark be committed, unless a higher one is marked. Safe on any thread."""
        with self._lock:
            self._marks[partition] = max(watermark, self._marks.get(partition, 0))

    def request(self, done: Callable[[], None]) -> None:
        """Commit soon, and call `done` when the brokers have answered or it has failed."""
        self._waiting.append(done)

    def step(self, consumer: Consumer) -> None:
        """Commit the marked offsets if the interval is over or a caller of `request` waits."""
        if self._sent or not (self._waiting or self._clock.now_s() >= self._next_at_s):
            return
        self._next_at_s = self._clock.now_s() + COMMIT_EVERY_S
        self._sent_for, self._waiting = self._waiting, []
        offsets = self._assignment.committable(self._live_marks())
        live = self._assignment.live()
        self._sent = {
            key: live[key]
            for offset in offsets
            if (key := (offset.topic, offset.partition)) in live
        }
        if not offsets:
            self._end()
            return
        crash.reach("commit.sending")
        try:
            consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            self.answered(error.args[0], [])

    def commit_now(self, consumer: Consumer, keys: Iterable[PartitionKey]) -> None:
        """Commit the marked offsets of these partitions, and wait for the brokers."""
        offsets = self._assignment.committable(self._live_marks(), keys)
        if not offsets:
            return
        crash.reach("commit.sending")
        try:
            for offset in consumer.commit(offsets=offsets, asynchronous=False):
                self._note(offset.error, offset)
        except KafkaException as error:
            self._note(error.args[0], None)
        crash.reach("commit.done")

    def answered(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """Take the answer to a commit that was sent.

        A failed commit is sent again a second later, if the partition is still ours.
        """
        if error is not None:
            self._note(error, None)
        live = self._assignment.live()
        for offset in offsets:
            key = (offset.topic, offset.partition)
            self._note(offset.error, offset)
            is_ours = key in live and self._sent.get(key) == live[key]
            if error is None and offset.error is None and is_ours:
                self._assignment.confirm(key, offset.offset)
        if error is None:
            crash.reach("commit.done")
        self._end()

    def abandon(self) -> None:
        """Expect no more answers, because the handle is gone; call every waiting `done`."""
        self._waiting += self._sent_for
        self._end()
        for done in self._waiting:
            done()
        self._waiting = []

    def _end(self) -> None:
        self._sent = {}
        for done in self._sent_for:
            done()
        self._sent_for = []

    def _live_marks(self) -> dict[Partition, int]:
        live = set(self._assignment.live().values())
        with self._lock:
            self._marks = {
                partition: mark for partition, mark in self._marks.items() if partition in live
            }
            return dict(self._marks)

    def _note(self, error: KafkaError | None, offset: TopicPartition | None) -> None:
        if error is not None:
            where = f"{offset.topic}[{offset.partition}]" if offset else "offsets"
            log.log(
                logging.DEBUG if error.code() in MOVED_ON else level(error),
                "%s not committed: %s",
                where,
                error.str(),
            )
