"""The work of the embedded source's thread, one pass at a time.

A pass commits the marked offsets, takes and releases partitions, and reads a few batches. Events
are delivered in the order in which they happened. The module knows nothing of threads or the event
loop.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from docllm.agent.consumer.embedded.partitions import EmbeddedPartitions, start
from docllm.agent.consumer.known_topics import StoredIdsReader
from docllm.agent.ports import AtRest, Event, Recreated
from docllm.producer.bus.embedded import log
from docllm.producer.bus.embedded.file import BusFile
from docllm.producer.bus.embedded.group import Member
from docllm.producer.bus.embedded.topics import states_of
from docllm.schemas.runtime import crash
from docllm.schemas.runtime.clock import Clock

IDLE_S = 0.05
# A mark is committed within a second, including the wait for the next pass.
_COMMIT_EVERY_S = 0.9
_SEARCH_EVERY_S = 0.5
_BATCHES_IN_FLIGHT = 4
_BATCH_RECORDS = 200
_BATCH_BYTES = 1 << 20


@dataclass(kw_only=True, eq=False)
class EmbeddedReader:
    """One member of a group. Raises what BusFile raises."""

    bus_path: Path
    topics: Sequence[str]
    group_id: str
    topic_ids: StoredIdsReader
    clock: Clock
    deliver: Callable[[Event], None]

    def __post_init__(self) -> None:
        self._file = BusFile(self.bus_path)
        self._member = Member(file=self._file, group_id=self.group_id, clock=self.clock)
        self.partitions = EmbeddedPartitions(self.deliver)
        self._subscribed: dict[str, str] = {}
        self._recreated: set[str] = set()
        self._joined = False
        self._in_flight = 0
        self._changes = -1
        self._passed_at_s = self.clock.now_s()
        # The first pass must search for dead members: no other member may be left to notice them.
        self._searched_at_s = -_SEARCH_EVERY_S

    def step(self) -> float:
        """Make one pass; return the seconds after which the next pass is useful.

        Returns 0 when more records can be read at once.
        """
        dead = self._dead()
        if dead or self._member.beat_is_due() or self._commit_is_due() or self._must_pass():
            self._make_pass(dead)
        self._read()
        has_room = self._in_flight < _BATCHES_IN_FLIGHT
        return 0.0 if has_room and self.partitions.readable() else IDLE_S

    def taken(self) -> None:
        """Note that the receiver has taken one batch."""
        self._in_flight -= 1

    def commit(self) -> None:
        """Commit the marked offsets now."""
        if self.partitions.marks():
            self._make_pass(set())

    def at_rest(self) -> AtRest:
        """Return how far the partitions are from their ends, as the file has it now."""
        owned_ids = self.partitions.ids
        holdings = self._member.watch().holdings
        return AtRest(
            joined=self._joined,
            lag=sum(
                holding.high - start(holding)
                for holding in holdings
                if holding.partition_id in owned_ids
            ),
        )

    def leave(self) -> None:
        """Commit the marked offsets, leave the group, close the file."""
        owned_before: frozenset[int] = frozenset()
        try:
            owned_before = self._member.leave(self.partitions.marks())
        finally:
            self.partitions.keep(frozenset(), owned_before)
            self.close()

    def close(self) -> None:
        """Close the file without leaving.

        The other members find the lock free and take over at once.
        """
        self._member.close()
        self._file.close()

    # ---- the group

    def _dead(self) -> set[str]:
        now_s = self.clock.now_s()
        if now_s - self._searched_at_s < _SEARCH_EVERY_S:
            return set()
        self._searched_at_s = now_s
        return self._member.dead()

    def _commit_is_due(self) -> bool:
        is_time = self.clock.now_s() - self._passed_at_s >= _COMMIT_EVERY_S
        return is_time and bool(self.partitions.marks())

    def _must_pass(self) -> bool:
        """Return whether a partition waits for us or the subscription changed.

        The bus is read only if another connection has written to it since the last check.
        """
        changes = self._file.changes()
        if changes == self._changes:
            return False
        subscribed = self._compare_topics()
        watch = self._member.watch()
        self.partitions.refresh(watch.holdings)
        self._changes = changes
        return watch.needs_pass or subscribed

    def _make_pass(self, dead: set[str]) -> None:
        self._compare_topics()
        marks = self.partitions.marks()
        if marks:
            crash.reach("commit.sending")
        result = self._member.make_pass(frozenset(self._subscribed.values()), marks, dead)
        if marks:
            crash.reach("commit.done")
        self._passed_at_s = self.clock.now_s()
        self._joined = not result.evicted
        self.partitions.committed(marks)
        self.partitions.keep(
            frozenset(holding.partition_id for holding in result.holdings), result.owned_before
        )
        self.partitions.refresh(result.holdings)
        self.partitions.assign(result.holdings)

    # ---- recreated topics

    def _compare_topics(self) -> bool:
        """Compare the topics' ids with the known ids; return whether the subscription changed."""
        before = dict(self._subscribed)
        known_ids = self.topic_ids.current()
        states = states_of(self._file, self.topics)
        for topic in self.topics:
            topic_id = states[topic].topic_id if topic in states else None
            is_known = topic_id is not None and known_ids.get(topic) == topic_id
            if not is_known or self._subscribed.get(topic, topic_id) != topic_id:
                self._drop_recreated(topic)
            if topic_id is not None and is_known:
                self._subscribe(topic, topic_id)
        return before != self._subscribed

    def _drop_recreated(self, topic: str) -> None:
        if topic not in self._recreated:
            self._recreated.add(topic)
            self._subscribed.pop(topic, None)
            self.partitions.drop_topic(topic)
            self.deliver(Recreated(topic, known=False))

    def _subscribe(self, topic: str, topic_id: str) -> None:
        self._subscribed[topic] = topic_id
        if topic in self._recreated:
            self._recreated.remove(topic)
            self.deliver(Recreated(topic, known=True))

    # ---- records

    def _read(self) -> None:
        for owned in self.partitions.readable():
            if self._in_flight >= _BATCHES_IN_FLIGHT:
                return
            rows = log.read_records(
                self._file,
                owned.id,
                owned.position,
                records=_BATCH_RECORDS,
                size_bytes=_BATCH_BYTES,
            )
            if rows:
                self._in_flight += 1
                self.partitions.hand_out(owned, rows)
            else:
                # The records were deleted since the last check: check again.
                self._changes = -1
