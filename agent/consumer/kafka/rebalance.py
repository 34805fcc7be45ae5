"""Turns events of the group and of topics into the epochs of partitions.

Partitions are assigned, revoked, lost, voided because their topic was recreated, and begun again.
Runs on the consumer thread, partly inside the client's callbacks. Nothing here raises: a partition
that could not be placed is tried again.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from docllm.agent.consumer.kafka.assignment import Assignment
from docllm.agent.consumer.kafka.commits import Commits
from docllm.agent.consumer.kafka.positions import PartitionKey, Start, starts
from docllm.agent.consumer.kafka.thread_bridge import ThreadBridge
from docllm.agent.consumer.kafka.topic_watch import TopicWatch
from docllm.agent.ports import Assigned, Partition, Recreated, Revoked, SourceFailed
from docllm.producer.bus.kafka.errors import level
from docllm.schemas.runtime.clock import Clock

log = logging.getLogger(__name__)

BEGIN_EVERY_S = 1.0
# Under KIP-848 a member that gets no partition hears nothing at all. After this time it counts as a
# member that was given no partition.
SILENCE_S = 10.0
# A group settles well within this time after a topic was made again.
LEFT_OUT_S = 15.0


@dataclass(kw_only=True, eq=False)
class Rebalance:
    """Turns the group's decisions and the topics' ids into epochs."""

    assignment: Assignment
    commits: Commits
    watch: TopicWatch
    bridge: ThreadBridge
    clock: Clock

    def __post_init__(self) -> None:
        self._unknown: set[str] = set()  # topics whose present id is not known yet
        self._from_low: set[PartitionKey] = set()  # void, to be begun at the low watermark
        # Recreated topics: only a commit that names the present id counts.
        self._labelled: set[str] = set()
        self._known_since_s: dict[str, float] = {}  # recreated topics, each until it is judged once
        self._next_at_s = 0.0
        self._outside_since_s = self.clock.now_s()

    # ---- callbacks of the client

    def on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Own the partitions that the group gives."""
        self.assignment.joined = True
        keys = [(partition.topic, partition.partition) for partition in partitions]
        self.assignment.add(keys)
        places: list[Start] = []
        if keys:
            self.watch.refresh()
            self._compare()
            places = self._starts(consumer, [key for key in keys if self._is_known(key[0])])
        placed = {start.key: start.position for start in places}
        try:
            consumer.incremental_assign(
                [
                    placed.get((partition.topic, partition.partition), partition)
                    for partition in partitions
                ]
            )
        except KafkaException as error:
            log.warning("partitions not assigned: %s", error)
            return
        self._begin(consumer, places)

    def on_revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        """Commit settled offsets and let go of the partitions.

        Running work continues on this agent, under its lease.
        """
        keys = [(partition.topic, partition.partition) for partition in taken]
        self.commits.commit_now(consumer, keys)
        self._drop(keys, lost=False)

    def on_lost(self, _: Consumer, taken: list[TopicPartition]) -> None:
        """Let go of partitions that another member owns already."""
        self._note_outside()
        self._drop([(partition.topic, partition.partition) for partition in taken], lost=True)

    def lose_all(self) -> None:
        """Let go of every partition, because the handle is gone."""
        self._note_outside()
        self._drop(self.assignment.keys(), lost=True)

    def pause(self, consumer: Consumer, keys: frozenset[PartitionKey]) -> None:
        """Replace the set of partitions that must not be read."""
        self.assignment.set_paused(keys)
        self._pause(consumer)

    def _note_outside(self) -> None:
        self.assignment.joined = False
        self._outside_since_s = self.clock.now_s()

    # ---- topics

    def step(self, consumer: Consumer) -> None:
        """Compare topic ids if new ids arrived, and begin void partitions that can be read."""
        if self.watch.check():
            self._compare()
            is_silent = self.clock.now_s() - self._outside_since_s > SILENCE_S
            self.assignment.joined = self.assignment.joined or is_silent
        if self.clock.now_s() >= self._next_at_s:
            self._begin_again(consumer)
        self._pause(consumer)

    def is_left_out(self) -> bool:
        """Return whether the group left this member without partitions of a recreated topic.

        The group's leader may have seen the new topic with some of its partitions only. It assigns
        the others no earlier than at the next join, so such a member should join anew, once.
        """
        now_s = self.clock.now_s()
        overdue_topics = [
            topic_name
            for topic_name, since_s in self._known_since_s.items()
            if now_s - since_s >= LEFT_OUT_S
        ]
        for topic in overdue_topics:
            del self._known_since_s[topic]
        return any(not self.assignment.keys(topic) for topic in overdue_topics)

    def _is_known(self, topic: str) -> bool:
        return topic not in self._unknown and self.watch.is_known(topic)

    def _compare(self) -> None:
        ids = self.watch.ids
        if ids is None:
            return  # no ids have arrived yet: assigned partitions stay void until they do
        live = self.assignment.live().values()
        changed = {
            partition.topic for partition in live if ids.get(partition.topic) != partition.topic_id
        }
        for topic in self.watch.topics:
            is_known = self.watch.is_known(topic)
            if topic not in self._unknown and (topic in changed or not is_known):
                self._unknown.add(topic)
                self._labelled.add(topic)
                self._revoked(self.assignment.void(self.assignment.keys(topic)))
                self.bridge.give(Recreated(topic, known=False))
            if topic in self._unknown and is_known:
                self._unknown.discard(topic)
                self._known_since_s[topic] = self.clock.now_s()
                self.bridge.give(Recreated(topic, known=True))

    # ---- offsets

    def out_of_range(self, key: PartitionKey) -> None:
        """Begin a partition again at its low watermark: no record exists at its offset."""
        self._revoked(self.assignment.void([key]))
        self._from_low.add(key)

    def _begin_again(self, consumer: Consumer) -> None:
        keys = [key for key in self.assignment.voided() if self._is_known(key[0])]
        if not keys:
            return
        self._next_at_s = self.clock.now_s() + BEGIN_EVERY_S
        places = self._starts(consumer, keys)
        if not places:
            return
        try:
            # A seek after an offset error would leave the partition dead. Removing and adding it
            # does not.
            consumer.incremental_unassign([TopicPartition(*start.key) for start in places])
            consumer.incremental_assign([start.position for start in places])
        except KafkaException as error:
            log.warning("partitions not begun anew: %s", error)
            return
        self._from_low.difference_update(start.key for start in places)
        self._begin(consumer, places)

    def _starts(self, consumer: Consumer, keys: Collection[PartitionKey]) -> list[Start]:
        try:
            return starts(
                consumer,
                keys,
                ids=self.watch.ids or {},
                from_low=self._from_low,
                labelled=self._labelled,
            )
        except KafkaException as error:
            log.log(level(error.args[0]), "no offsets to begin from: %s", error)
            return []

    def _begin(self, consumer: Consumer, places: list[Start]) -> None:
        begun = self.assignment.begin(places, self.watch.ids or {})
        for start in places:
            if start.why:
                self.bridge.give(SourceFailed(start.why, rewound=True))
        if begun:
            self.bridge.give(Assigned(begun))
        self._pause(consumer)

    def _pause(self, consumer: Consumer) -> None:
        try:
            self.assignment.apply_pauses(consumer)
        except KafkaException as error:
            log.warning("not paused or resumed: %s", error)

    def _drop(self, keys: Collection[PartitionKey], *, lost: bool) -> None:
        self._from_low.difference_update(keys)
        self._revoked(self.assignment.drop(keys), lost=lost)

    def _revoked(self, partitions: tuple[Partition, ...], *, lost: bool = False) -> None:
        if partitions:
            self.bridge.give(Revoked(partitions, lost=lost))
