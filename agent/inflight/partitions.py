"""The partitions assigned to this agent: watermarks, deliveries in flight, and pauses."""

from collections.abc import Container, Iterable, Mapping

from docllm.agent.inflight.delivery import Delivery
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.watermark import OffsetTracker
from docllm.agent.ports import Partition, Source


class Partitions:
    """The offset trackers, one for each assignment.

    An assignment that is over has no tracker, so its records cannot move an offset. `sources` are
    by topic; one source may read several topics.
    """

    def __init__(self, sources: Mapping[str, Source], *, limits: InFlightLimits) -> None:
        self._sources = sources
        self._limits = limits
        self._trackers: dict[Partition, OffsetTracker] = {}
        self._deliveries: dict[Partition, dict[int, Delivery]] = {}
        self._marked: dict[Partition, int] = {}
        self._wide: set[Partition] = set()
        self._paused: dict[int, frozenset[Partition]] = {}  # by number of the source
        self._by_number = {id(source): source for source in sources.values()}
        self._numbers = {topic: id(source) for topic, source in sources.items()}

    def __contains__(self, partition: object) -> bool:
        return partition in self._trackers

    def __len__(self) -> int:
        return len(self._trackers)

    @property
    def topics(self) -> list[str]:
        """The topics that this agent reads."""
        return list(self._sources)

    def owned(self, topics: Container[str]) -> int:
        """Return how many partitions of these topics are assigned."""
        return sum(partition.topic in topics for partition in self._trackers)

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Start to track an assignment."""
        for partition in partitions:
            self._trackers[partition] = OffsetTracker()
            self._deliveries[partition] = {}
        self._paused.clear()

    def revoke(self, partitions: Iterable[Partition]) -> list[Delivery]:
        """Forget an assignment; return its deliveries in flight."""
        dropped: list[Delivery] = []
        for partition in partitions:
            self._trackers.pop(partition, None)
            self._marked.pop(partition, None)
            self._wide.discard(partition)
            dropped += self._deliveries.pop(partition, {}).values()
        return dropped

    def begin(self, partition: Partition, offset: int) -> bool:
        """Add a record that was read; return False if the agent must not work on it.

        Such a record belongs to an old assignment, or was read before.
        """
        tracker = self._trackers.get(partition)
        return tracker is not None and tracker.begin(offset)

    def keep(self, delivery: Delivery) -> None:
        """Store the delivery that a record became."""
        self._deliveries[delivery.partition][delivery.offset] = delivery

    def finish_record(self, partition: Partition, offset: int) -> None:
        """Finish a record; do nothing if its assignment is over."""
        tracker = self._trackers.get(partition)
        if tracker is not None:
            tracker.finish_offset(offset)
            self._deliveries[partition].pop(offset, None)

    def redelivered(self, partition: Partition) -> bool:
        """Return whether the next records may have been settled before this assignment began."""
        tracker = self._trackers.get(partition)
        return tracker is not None and tracker.redelivered

    def note_not_redelivered(self, partition: Partition) -> None:
        """Note that the next records of this assignment were not settled before it began."""
        if partition in self._trackers:
            self._trackers[partition].redelivered = False

    def flush(self) -> None:
        """Mark the watermarks that moved, for the sources to commit."""
        for partition, tracker in self._trackers.items():
            watermark = tracker.watermark
            if watermark is not None and watermark != self._marked.get(partition):
                self._marked[partition] = watermark
                self._sources[partition.topic].mark(partition, watermark)

    def marked(self) -> dict[tuple[str, int], int]:
        """Return the watermarks of the assigned partitions; all records below are finished."""
        return {
            (partition.topic, partition.number): watermark
            for partition, watermark in self._marked.items()
        }

    def pause(self, topics: Container[str]) -> None:
        """Pause partitions whose span is too wide, and all of `topics`; resume the others.

        A partition of which nothing was read yet is never paused: its first records may be those
        that a lost agent left behind.
        """
        for partition, tracker in self._trackers.items():
            span = tracker.span
            if span >= self._limits.span:
                self._wide.add(partition)
            elif self._wide and span < self._limits.resume_span:
                self._wide.discard(partition)
        chosen: dict[int, set[Partition]] = {number: set() for number in self._by_number}
        for partition, tracker in self._trackers.items():
            begun = tracker.watermark is not None
            if begun and (partition.topic in topics or partition in self._wide):
                chosen[self._numbers[partition.topic]].add(partition)
        for number, source in self._by_number.items():
            paused = frozenset(chosen[number])
            if self._paused.get(number) != paused:
                self._paused[number] = paused
                source.pause(paused)

    def unfinished(self, topic: str) -> int:
        """Return how many records of a topic were read and are not finished."""
        return sum(
            tracker.unfinished
            for partition, tracker in self._trackers.items()
            if partition.topic == topic
        )

    def blocking(self, finished: float) -> list[Delivery]:
        """Return the deliveries that block a wide span with at least this finished share."""
        return [
            self._deliveries[partition][tracker.watermark]
            for partition, tracker in self._trackers.items()
            if tracker.watermark is not None
            and tracker.watermark in self._deliveries[partition]
            and tracker.span >= self._limits.span
            and tracker.unfinished <= (1 - finished) * tracker.span
        ]
