"""The partitions of an embedded source: their positions, their commits, their pauses.

It reports assigned, revoked and rewound partitions to the loop; it writes nothing to the bus.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from docllm.agent.ports import Assigned, Event, Partition, Record, Revoked, SourceFailed
from docllm.producer.bus.embedded.group import Holding
from docllm.producer.bus.embedded.log import Stored

# Epochs never repeat in a process, whichever source draws them.
_EPOCHS = count(1)


@dataclass(slots=True)
class OwnedPartition:
    """An owned partition.

    `position` is the next offset to read, `high` the end of the log, `mark` the offset to commit,
    `committed` the offset that is committed.
    """

    id: int
    partition: Partition
    position: int
    high: int
    mark: int
    committed: int


class EmbeddedPartitions:
    """The owned partitions, in the order in which they are read next."""

    def __init__(self, deliver: Callable[[Event], None]) -> None:
        self._deliver = deliver
        self._owned: dict[Partition, OwnedPartition] = {}
        self._paused: frozenset[tuple[str, int]] = frozenset()

    @property
    def ids(self) -> frozenset[int]:
        """The bus's ids of the owned partitions."""
        return frozenset(owned.id for owned in self._owned.values())

    @property
    def lag(self) -> Mapping[str, int]:
        """How many records are above the watermarks, by topic."""
        lag: Counter[str] = Counter()
        for partition, owned in self._owned.items():
            lag[partition.topic] += max(0, owned.high - owned.mark)
        return lag

    def pause(self, partitions: Iterable[Partition]) -> None:
        """Replace the set of paused partitions; their epochs do not matter."""
        self._paused = frozenset((partition.topic, partition.number) for partition in partitions)

    def mark(self, partition: Partition, watermark: int) -> None:
        """Note an offset that may be committed.

        A mark with an old epoch is ignored, and so is a mark below an earlier one.
        """
        owned = self._owned.get(partition)
        if owned is not None:
            owned.mark = max(owned.mark, watermark)

    def marks(self) -> dict[int, int]:
        """Return the marks that wait to be committed, by the bus's partition id."""
        return {
            owned.id: owned.mark for owned in self._owned.values() if owned.mark > owned.committed
        }

    def committed(self, marks: Mapping[int, int]) -> None:
        """Note that these marks are committed."""
        for owned in self._owned.values():
            owned.committed = marks.get(owned.id, owned.committed)

    def assign(self, holdings: Sequence[Holding]) -> None:
        """Add the partitions that are not owned yet, and report those that were rewound."""
        owned_ids = self.ids
        new_holdings = [holding for holding in holdings if holding.partition_id not in owned_ids]
        new_partitions = [_begin(holding) for holding in new_holdings]
        self._owned |= {owned.partition: owned for owned in new_partitions}
        if new_partitions:
            self._deliver(Assigned(tuple(owned.partition for owned in new_partitions)))
        for holding in new_holdings:
            if start(holding) != (holding.committed or 0):
                self._report_rewound(holding, holding.committed)

    def keep(self, remaining: frozenset[int], owned_before: frozenset[int]) -> None:
        """Drop all partitions but `remaining`.

        Dropped partitions that are not in `owned_before` had already been taken away before the
        last transaction began; they are reported as lost.
        """
        self._drop(
            [owned for owned in self._owned.values() if owned.id not in remaining], owned_before
        )

    def drop_topic(self, topic: str) -> None:
        """Drop a topic's partitions as lost."""
        self._drop(
            [owned for owned in self._owned.values() if owned.partition.topic == topic], frozenset()
        )

    def _drop(self, dropped: Sequence[OwnedPartition], owned_before: frozenset[int]) -> None:
        for lost in (False, True):
            partitions = tuple(
                owned.partition for owned in dropped if (owned.id not in owned_before) is lost
            )
            for partition in partitions:
                del self._owned[partition]
            if partitions:
                self._deliver(Revoked(partitions, lost=lost))

    def refresh(self, holdings: Iterable[Holding]) -> None:
        """Update the ends of the logs; continue at the low watermark if records were deleted."""
        ends = {holding.partition_id: holding for holding in holdings}
        for owned in self._owned.values():
            holding = ends.get(owned.id)
            if holding is None:
                continue
            owned.high = holding.high
            if owned.position < holding.low:
                self._report_rewound(holding, owned.position)
                owned.position = holding.low

    def _report_rewound(self, holding: Holding, committed: int | None) -> None:
        where = f"{holding.topic} [{holding.number}]"
        offset = (
            "no offset is committed" if committed is None else f"offset {committed} is out of range"
        )
        self._deliver(
            SourceFailed(
                f"{where}: {offset}, reading from the low watermark {holding.low}", rewound=True
            )
        )

    def readable(self) -> list[OwnedPartition]:
        """Return the partitions that can be read now, the one that waited longest first."""
        return [
            owned
            for owned in self._owned.values()
            if owned.position < owned.high and not self._is_paused(owned.partition)
        ]

    def _is_paused(self, partition: Partition) -> bool:
        return (partition.topic, partition.number) in self._paused

    def hand_out(self, owned: OwnedPartition, rows: Sequence[Stored]) -> None:
        """Deliver the records read from a partition, and put it behind the others."""
        owned.position = rows[-1].offset + 1
        self._owned[owned.partition] = self._owned.pop(owned.partition)
        self._deliver(
            [
                Record(
                    owned.partition, row.offset, row.timestamp_ms, row.key, row.value, row.headers
                )
                for row in rows
            ]
        )


def start(holding: Holding) -> int:
    """Return the offset to read from: the committed one if in range, else the low watermark."""
    if holding.committed is not None and holding.low <= holding.committed <= holding.high:
        return holding.committed
    return holding.low


def _begin(holding: Holding) -> OwnedPartition:
    position = start(holding)
    partition = Partition(holding.topic, holding.topic_id, holding.number, next(_EPOCHS))
    return OwnedPartition(
        holding.partition_id, partition, position, holding.high, mark=position, committed=position
    )
