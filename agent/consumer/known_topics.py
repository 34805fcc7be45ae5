"""The topic ids that `topics apply` stored, held in memory to notice a recreated topic."""

from collections.abc import Mapping
from dataclasses import dataclass

from docllm.producer.bus.topic_family import StoredIds, TopicFamily
from docllm.schemas.runtime.clock import Clock

KNOWN_TOPICS_S = 3.0


@dataclass(slots=True, kw_only=True, eq=False)
class StoredIdsReader:
    """The topic ids that `topics apply` stored, read again every few seconds.

    `current` is safe in other threads.
    """

    family: TopicFamily
    clock: Clock
    stored: StoredIds

    def current(self) -> Mapping[str, str]:
        """Return the stored id of each topic."""
        return self.stored.topic_ids

    async def run(self) -> None:
        """Read the ids again until cancelled.

        While the ledger does not answer, the last ids stay in use.
        """
        while True:
            await self.clock.sleep(KNOWN_TOPICS_S)
            self.stored = await self.family.stored_ids() or self.stored
