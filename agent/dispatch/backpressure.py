"""Backpressure: pauses topics while enough of their records wait, and resumes them later."""

from collections.abc import Mapping

from agent.dispatch.quarantine_queue import QuarantineQueue
from agent.inflight.limits import Limits
from agent.inflight.partitions import Partitions
from agent.inflight.table import InFlightTable
from schemas.task.lanes import Lane


class Backpressure:
    """Decides which topics are paused.

    `full` means that enough deliveries wait for a slot, or that they take too much memory. `lanes`
    are by topic.
    """

    def __init__(
        self,
        *,
        table: InFlightTable,
        partitions: Partitions,
        quarantine: QuarantineQueue,
        slots: int,
        lanes: Mapping[str, Lane],
        limits: Limits,
    ) -> None:
        self.full = False
        self._table = table
        self._partitions = partitions
        self._quarantine = quarantine
        self._lanes = lanes
        self._limits = limits
        self._high = max(limits.ready, 2 * slots)

    def update(self) -> None:
        """Pause and resume topics by the number and size of the waiting deliveries."""
        many = self._table.waiting >= (self._high // 2 if self.full else self._high)
        heavy = (
            self._table.bodies_bytes + self._quarantine.bytes >= self._limits.bodies_bytes
            or len(self._quarantine) > self._limits.rejected
        )
        self.full = many or heavy
        self._partitions.pause(
            {topic for topic in self._partitions.topics if heavy or self._enough(topic, many=many)}
        )

    def _enough(self, topic: str, *, many: bool) -> bool:
        """Return whether enough records of a topic wait.

        Records in a tier are due by the clock, so newer tasks must not keep a tier from being read.
        """
        if topic in self._lanes:
            return many or self._table.shelved >= self._limits.shelved
        return self._partitions.unfinished(topic) >= self._limits.shelved
