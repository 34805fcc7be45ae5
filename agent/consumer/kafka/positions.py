"""Finds a partition's starting offset and its bounds, as the brokers know them.

Only asks; runs on the consumer thread.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition

log = logging.getLogger(__name__)

REQUEST_S = 2.0
# In a commit's metadata: the id of the topic that the offset belongs to.
LABEL = "docllm/1 topic="
PartitionKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Start:
    """Where to read a partition from.

    `why` explains a position other than the committed offset; otherwise it is empty.
    """

    position: TopicPartition
    why: str = ""

    @property
    def key(self) -> PartitionKey:
        """Topic and number."""
        return self.position.topic, self.position.partition


def starts(
    consumer: Consumer,
    keys: Collection[PartitionKey],
    *,
    ids: Mapping[str, str],
    from_low: Collection[PartitionKey],
    labelled: Collection[str],
) -> list[Start]:
    """Return where to read from: the committed offset if it counts, else the low watermark.

    A committed offset counts if it belongs to the present topic of that name. `from_low` are
    partitions whose committed offset is of no use. `labelled` are topics where an offset counts
    only when its commit named the topic's present id. Partitions that the brokers do not answer for
    are left out. Raises KafkaException.
    """
    if not keys:
        return []
    answers = consumer.committed([TopicPartition(*key) for key in keys], timeout=REQUEST_S)
    committed = {
        (answer.topic, answer.partition): answer for answer in answers if answer.error is None
    }
    usable = {
        key
        for key, answer in committed.items()
        if key not in from_low
        and answer.offset >= 0
        and _fits(answer, ids[answer.topic], labelled=answer.topic in labelled)
    }
    low = lows(consumer, committed.keys() - usable)
    return [
        Start(answer) if key in usable else _start_at_low(answer, low[key])
        for key, answer in committed.items()
        if key in usable or key in low
    ]


def lows(consumer: Consumer, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
    """Return the low watermarks of the partitions that the brokers know. Raises KafkaException."""
    return _edges(consumer, keys, OFFSET_BEGINNING)


def highs(consumer: Consumer, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
    """Return the ends of the partitions that the brokers know. Raises KafkaException."""
    return _edges(consumer, keys, OFFSET_END)


def _edges(consumer: Consumer, keys: Iterable[PartitionKey], edge: int) -> dict[PartitionKey, int]:
    # One request for all partitions: separate requests would each wait behind a fetch on the same
    # connection.
    questions = [TopicPartition(*key, edge) for key in keys]
    answers = consumer.offsets_for_times(questions, timeout=REQUEST_S) if questions else []
    for answer in answers:
        if answer.error is not None:
            log.warning(
                "%s[%d]: no watermark: %s", answer.topic, answer.partition, answer.error.str()
            )
    return {
        (answer.topic, answer.partition): answer.offset
        for answer in answers
        if answer.error is None and answer.offset >= 0
    }


def _fits(committed: TopicPartition, topic_id: str, *, labelled: bool) -> bool:
    metadata = committed.metadata or ""
    return metadata == LABEL + topic_id or not (labelled or metadata.startswith(LABEL))


def _start_at_low(committed: TopicPartition, low: int) -> Start:
    name, position = (
        f"{committed.topic}[{committed.partition}]",
        TopicPartition(committed.topic, committed.partition, low),
    )
    if committed.offset >= 0:
        return Start(
            position,
            f"{name}: no record at the committed offset {committed.offset}; reading on from {low}",
        )
    return Start(
        position,
        f"{name}: no offset is committed and the records below {low} are gone" if low > 0 else "",
    )
