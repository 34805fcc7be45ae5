"""Backpressure: pauses topics while enough of their records wait, and resumes them later."""

from agent.dispatch.quarantine_queue import QuarantineQueue
from agent.inflight.limits import Limits
from agent.inflight.partitions import Partitions
from agent.inflight.table import InFlightTable


class Backpressure:
    """Decides which topics are paused.

    `full` means that enough deliveries wait for a slot, or that they take too much memory.
    """

    def __init__(
        self,
        *,
        entries: InFlightTable,
        partitions: Partitions,
        aside: QuarantineQueue,
        slots: int,
        main_topic: str,
        limits: Limits,
    ) -> None:
        self.full = False
        self._entries = entries
        self._partitions = partitions
        self._aside = aside
        self._main_topic = main_topic
        self._limits = limits
        self._high = max(limits.ready, 2 * slots)

    def look(self) -> None:
        """Pause and resume topics by the number and size of the waiting deliveries."""
        many = self._entries.waiting >= (self._high // 2 if self.full else self._high)
        heavy = (
            self._entries.bodies_bytes + self._aside.bytes >= self._limits.bodies_bytes
            or len(self._aside) > self._limits.rejected
        )
        self.full = many or heavy
        self._partitions.pause(
            {topic for topic in self._partitions.topics if heavy or self._enough(topic, many=many)}
        )

    def _enough(self, topic: str, *, many: bool) -> bool:
        """Return whether enough records of a topic wait.

        Records in a tier are due by the clock, so newer tasks must not keep a tier from being read.
        """
        if topic == self._main_topic:
            return many or self._entries.parked >= self._limits.shelved
        return self._partitions.unfinished(topic) >= self._limits.shelved
