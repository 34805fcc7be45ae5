"""Backpressure: pauses topics while enough of their records wait, and resumes them later."""

from collections.abc import Mapping
from dataclasses import dataclass

from docllm.agent.dispatch.quarantine_queue import QuarantineQueue
from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.inflight.table import InFlightTable
from docllm.schemas.task.record.lanes import Lane

TIGHT_SHARE = 7 / 8  # of the memory for bodies; the rest is kept for lanes that use little


@dataclass(kw_only=True, eq=False)
class Backpressure:
    """Decides which topics are paused.

    `full` means that enough deliveries wait for a slot, or that they take too much memory. `lanes`
    are by topic.
    """

    table: InFlightTable
    partitions: Partitions
    quarantine: QuarantineQueue
    slots: int
    lanes: Mapping[str, Lane]
    limits: InFlightLimits

    def __post_init__(self) -> None:
        self.full = False
        high = max(self.limits.ready, 2 * self.slots)
        self._step = high // 2
        self._high = dict.fromkeys(Lane, high)
        self._high[Lane.NORMAL] = max(high, self.limits.ready_normal)
        self._full_lanes: set[Lane] = set()

    def update(self) -> None:
        """Pause and resume topics by the number and size of the waiting deliveries."""
        self._full_lanes = {lane for lane in set(self.lanes.values()) if self._lane_is_full(lane)}
        heavy = (
            self.table.bodies_bytes + self.quarantine.bytes >= self.limits.bodies_bytes
            or len(self.quarantine) > self.limits.rejected
        )
        self.full = bool(self._full_lanes) or heavy
        self.partitions.pause(
            {topic for topic in self.partitions.topics if heavy or self._topic_is_full(topic)}
        )

    def _lane_is_full(self, lane: Lane) -> bool:
        """Return whether no more of a lane may be read for now.

        Each lane has a limit of its own, so that a full lane does not stop the reading of other
        lanes. When memory is nearly full, lanes that use little memory are still read.
        """
        high = self._high[lane] - (self._step if lane in self._full_lanes else 0)
        tight = self.table.bodies_bytes >= TIGHT_SHARE * self.limits.bodies_bytes
        large = self.table.bytes_of(lane) >= self.limits.bodies_bytes / len(Lane)
        return self.table.waiting_in(lane) >= high or (tight and large)

    def _topic_is_full(self, topic: str) -> bool:
        """Return whether enough records of a topic wait.

        A tier counts only its own records: they are due by the clock, so newer tasks must not stop
        the reading of a tier.
        """
        if (lane := self.lanes.get(topic)) is not None:
            return lane in self._full_lanes or self.table.shelved >= self.limits.shelved
        return self.partitions.unfinished(topic) >= self.limits.shelved
