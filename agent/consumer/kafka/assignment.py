"""The partitions that a consumer handle owns: their epochs, offsets and pauses.

Runs on the consumer thread alone. An owned partition without an epoch is void: until it is placed
again, none of its records is delivered and none of its offsets is committed.
"""

import itertools
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from docllm.agent.consumer.kafka.positions import LABEL, PartitionKey, Start, highs, lows
from docllm.agent.ports import Partition, Record
from docllm.producer.bus.kafka.errors import level
from docllm.schemas.clients.kafka import raw_headers

log = logging.getLogger(__name__)


@dataclass(slots=True)
class AssignedPartition:
    """A partition that the group gave to this handle."""

    partition: Partition | None = None
    committed: int = 0
    unread: int = 0  # the offset after the last record that was read
    end: int = 0  # the offset at which the client last found the partition's end
    # None: unknown whether the client has paused it, because its flag survives a reassignment.
    paused: bool | None = None
    # Pairs of (first offset, leader epoch), ascending.
    leader_epochs: list[tuple[int, int]] = field(default_factory=list)

    def note(self, offset: int, leader_epoch: int | None) -> None:
        """Remember that an offset was read, and under which leader epoch."""
        self.unread = offset + 1
        newest = self.leader_epochs[-1][1] if self.leader_epochs else None
        if leader_epoch not in {None, newest}:
            self.leader_epochs.append((offset, leader_epoch))

    def lag(self, low: int, high: int) -> int:
        """Return the number of offsets above the committed one.

        Returns 0 when every record that was read is committed and there is nothing more to read.
        """
        if self.committed >= self.unread and self.end >= high:
            return 0
        return max(high - max(self.committed, low), 0)

    def epoch_below(self, watermark: int) -> int | None:
        """Return the leader epoch of the last record below the watermark; forget older epochs."""
        while len(self.leader_epochs) > 1 and self.leader_epochs[1][0] < watermark:
            self.leader_epochs.pop(0)
        if not self.leader_epochs:
            return None
        offset, leader_epoch = self.leader_epochs[0]
        return leader_epoch if offset < watermark else None


class Assignment:
    """The partitions of one handle."""

    def __init__(self) -> None:
        self._epochs: Iterator[int] = itertools.count(1)
        self._owned: dict[PartitionKey, AssignedPartition] = {}
        self._unread: frozenset[PartitionKey] = frozenset()
        # By topic, as `count_lag` found it; read on any thread.
        self.last_lag: Mapping[str, int] = {}
        self.joined = False  # the group has answered, even if it gave no partition

    def __len__(self) -> int:
        return len(self._owned)

    def keys(self, topic: str | None = None) -> list[PartitionKey]:
        """Return the partitions of one topic or of all topics, void ones included."""
        return [key for key in self._owned if topic is None or key[0] == topic]

    def add(self, keys: Iterable[PartitionKey]) -> None:
        """Own these partitions, void at first."""
        self._owned.update({key: AssignedPartition() for key in keys})

    def drop(self, keys: Iterable[PartitionKey]) -> tuple[Partition, ...]:
        """Disown these partitions; return the ones that were not void."""
        dropped = [self._owned.pop(key) for key in keys if key in self._owned]
        return tuple(owned.partition for owned in dropped if owned.partition)

    def void(self, keys: Iterable[PartitionKey]) -> tuple[Partition, ...]:
        """End the epochs of these partitions; return those that were not void."""
        ended = [owned for key in keys if (owned := self._owned.get(key)) and owned.partition]
        partitions = tuple(owned.partition for owned in ended if owned.partition)
        for owned in ended:
            owned.partition = None
        return partitions

    def voided(self) -> list[PartitionKey]:
        """Return the partitions that are void."""
        return [key for key, owned in self._owned.items() if owned.partition is None]

    def live(self, keys: Iterable[PartitionKey] | None = None) -> dict[PartitionKey, Partition]:
        """Return the partitions that are not void.

        Safe on any thread, because it looks at a copy.
        """
        owned = dict(self._owned)
        owned_keys = owned if keys is None else [key for key in keys if key in owned]
        return {key: partition for key in owned_keys if (partition := owned[key].partition)}

    # ---- reading

    def record(self, message: Message) -> Record | None:
        """Return a message as a record of its epoch; None for a void partition."""
        offset = message.offset() or 0
        owned = self._owned.get((message.topic() or "", message.partition() or 0))
        if owned is None or owned.partition is None:
            return None
        owned.note(offset, message.leader_epoch())
        return Record(
            owned.partition,
            offset,
            message.timestamp()[1],
            message.key(),
            message.value(),
            raw_headers(message),
        )

    def ended(self, key: PartitionKey, offset: int) -> None:
        """Note that the end was reached; offsets past the last record are transaction markers."""
        if key in self._owned:
            self._owned[key].end = offset

    # ---- placing

    def begin(self, starts: Iterable[Start], ids: Mapping[str, str]) -> tuple[Partition, ...]:
        """Give new epochs to owned partitions that the client now reads from these starts."""
        begun = []
        for start in starts:
            topic, number = start.key
            partition = Partition(topic, ids[topic], number, next(self._epochs))
            self._owned[start.key] = AssignedPartition(partition, start.position.offset)
            begun.append(partition)
        return tuple(begun)

    # ---- pausing

    def set_paused(self, keys: Collection[PartitionKey]) -> None:
        """Replace the set of partitions that must not be read."""
        self._unread = frozenset(keys)

    def apply_pauses(self, consumer: Consumer) -> None:
        """Pass changed pauses to the client; void partitions are paused too."""
        pauses = {
            key: owned.partition is None or key in self._unread
            for key, owned in self._owned.items()
        }
        changed = {
            key: pause for key, pause in pauses.items() if self._owned[key].paused is not pause
        }
        for pause, call in ((True, consumer.pause), (False, consumer.resume)):
            keys = [key for key, should_pause in changed.items() if should_pause is pause]
            if keys:
                call([TopicPartition(*key) for key in keys])
            for key in keys:
                self._owned[key].paused = pause

    # ---- committing

    def committable(
        self, marks: Mapping[Partition, int], keys: Iterable[PartitionKey] | None = None
    ) -> list[TopicPartition]:
        """Return the offsets to commit: marks of running epochs above the confirmed offsets."""
        live = self.live(keys)
        return [
            self._offset(key, partition, marks[partition])
            for key, partition in live.items()
            if self._ahead(key, marks.get(partition))
        ]

    def _ahead(self, key: PartitionKey, mark: int | None) -> bool:
        return mark is not None and mark > self._owned[key].committed

    def _offset(self, key: PartitionKey, partition: Partition, mark: int) -> TopicPartition:
        epoch = self._owned[key].epoch_below(mark)
        return TopicPartition(
            *key, mark, LABEL + partition.topic_id, -1 if epoch is None else epoch
        )

    def confirm(self, key: PartitionKey, offset: int) -> None:
        """Note an offset that the brokers have accepted."""
        self._owned[key].committed = max(self._owned[key].committed, offset)

    def lag(self, consumer: Consumer) -> int:
        """Return the number of records above the committed offsets.

        A partition that is void or cannot be asked counts as one record.
        """
        live = self.live()
        try:
            low, high = lows(consumer, live), highs(consumer, live)
        except KafkaException as error:
            log.log(level(error.args[0]), "no watermarks: %s", error.args[0].str())
            return len(self._owned)
        answered = low.keys() & high
        return sum(
            owned.lag(low[key], high[key]) if key in answered else 1
            for key, owned in self._owned.items()
        )

    def count_lag(self, consumer: Consumer) -> None:
        """Count the records above the committed offsets, by the client's cached positions."""
        lag: Counter[str] = Counter()
        for key, owned in self._owned.items():
            try:
                _, high = consumer.get_watermark_offsets(TopicPartition(*key), cached=True)
            except KafkaException:  # the client has not heard of this partition yet
                high = 0
            lag[key[0]] += owned.lag(0, high) if owned.partition is not None else 0
        self.last_lag = lag
