"""The partitions that this agent has: their watermarks, the entries in flight, and which of them shall not be read."""

from collections.abc import Container, Iterable, Mapping

from agent.entry import Entry
from agent.offsets import Tracker
from agent.ports import Partition, Source

SPAN = 50_000  # records between the watermark and the newest: what a crash repeats
RESUME_SPAN = 45_000
STUCK_SHARE = 0.1  # of a wide span's records finished with: other tasks came and went


class Partitions:
    """Trackers by assignment. What belongs to an older assignment is not there, so nothing can move its offset."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources
        self._trackers: dict[Partition, Tracker] = {}
        self._entries: dict[Partition, dict[int, Entry]] = {}
        self._marked: dict[Partition, int] = {}
        self._wide: set[Partition] = set()
        self._paused: dict[str, frozenset[Partition]] = {}

    def __contains__(self, partition: object) -> bool:
        return partition in self._trackers

    def __len__(self) -> int:
        return len(self._trackers)

    @property
    def topics(self) -> list[str]:
        """Return the topics that are read."""
        return list(self._sources)

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Begin to track an assignment."""
        for partition in partitions:
            self._trackers[partition] = Tracker()
            self._entries[partition] = {}
        self._paused.clear()

    def revoke(self, partitions: Iterable[Partition]) -> list[Entry]:
        """Forget an assignment; return its entries in flight."""
        dropped: list[Entry] = []
        for partition in partitions:
            self._trackers.pop(partition, None)
            self._marked.pop(partition, None)
            self._wide.discard(partition)
            dropped += self._entries.pop(partition, {}).values()
        return dropped

    def begin(self, partition: Partition, offset: int) -> bool:
        """Note a record that was read; False when it is not to be worked on: an old assignment, or read before."""
        tracker = self._trackers.get(partition)
        return tracker is not None and tracker.begin(offset)

    def keep(self, entry: Entry) -> None:
        """Note which entry a record became."""
        self._entries[entry.partition][entry.offset] = entry

    def finish(self, partition: Partition, offset: int) -> None:
        """Note that a record is finished with; nothing happens when its assignment is over."""
        if partition in self._trackers:
            self._trackers[partition].finish(offset)
            self._entries[partition].pop(offset, None)

    def redelivered(self, partition: Partition) -> bool:
        """Return whether records of this assignment may have been settled before it began."""
        tracker = self._trackers.get(partition)
        return tracker is not None and tracker.redelivered

    def fresh(self, partition: Partition) -> None:
        """Note that what comes now was not settled before."""
        if partition in self._trackers:
            self._trackers[partition].redelivered = False

    def flush(self) -> None:
        """Mark the watermarks that moved; the sources commit them."""
        for partition, tracker in self._trackers.items():
            watermark = tracker.watermark
            if watermark is not None and watermark != self._marked.get(partition):
                self._marked[partition] = watermark
                self._sources[partition.topic].mark(partition, watermark)

    def marked(self) -> dict[tuple[str, int], int]:
        """Return the watermarks of the partitions that this agent has: what lies below is finished with."""
        return {(partition.topic, partition.number): watermark for partition, watermark in self._marked.items()}

    def pause(self, topics: Container[str]) -> None:
        """Let the sources read on, except where the span is too wide, and nothing at all of these topics.

        A partition of which nothing was read is always read: its first records may be what a dead agent left behind.
        """
        for partition, tracker in self._trackers.items():
            if tracker.span >= SPAN:
                self._wide.add(partition)
            elif tracker.span < RESUME_SPAN:
                self._wide.discard(partition)
        for topic, source in self._sources.items():
            begun = (one for one, tracker in self._trackers.items() if one.topic == topic and tracker.watermark is not None)
            mine = frozenset(one for one in begun if topic in topics or one in self._wide)
            if self._paused.get(topic) != mine:
                self._paused[topic] = mine
                source.pause(mine)

    def unfinished(self, topic: str) -> int:
        """Return how many records of a topic were read and are not finished with."""
        return sum(tracker.unfinished for partition, tracker in self._trackers.items() if partition.topic == topic)

    def blocking(self, finished: float) -> list[Entry]:
        """Return the entries that keep a wide span from moving on of whose records this share is finished with."""
        return [
            self._entries[partition][tracker.watermark]
            for partition, tracker in self._trackers.items()
            if tracker.watermark is not None
            and tracker.watermark in self._entries[partition]
            and tracker.span >= SPAN
            and tracker.unfinished <= (1 - finished) * tracker.span
        ]
