"""Knows which part of a group's partitions is assigned to this agent.

The shares of all agents add up to 1 without any communication. Agents without a partition add a
very small share each.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from docllm.agent.inflight.partitions import Partitions
from docllm.agent.ports import Clock, TopicState
from docllm.schemas.runtime.outage import DUTY, Outage

# The share of an agent without a partition, as a part of one partition: it may run tasks from
# tiers.
MIN_OWNED = 0.1
COUNT_EVERY_S = 30.0
SOON_S = 2.0


@dataclass(kw_only=True, eq=False)
class PartitionShare:
    """The share of some topics. It is 0 until the number of their partitions is known."""

    partitions: Partitions
    topics: Sequence[str]
    describe: Callable[[Sequence[str]], Awaitable[Mapping[str, TopicState]]]
    clock: Clock

    def __post_init__(self) -> None:
        self._all = 0
        self._trouble = Outage(name="the number of partitions", clock=self.clock, words=DUTY)

    def __call__(self) -> float:
        """Return the assigned part, from 0 to 1."""
        owned = max(MIN_OWNED, self.partitions.owned(self.topics))
        return min(1.0, owned / self._all) if self._all else 0.0

    async def run(self) -> None:
        """Look up the number of partitions now and then, until cancelled."""
        while True:
            await self._count()
            await self.clock.sleep(COUNT_EVERY_S if self._all else SOON_S)

    async def _count(self) -> None:
        try:
            states = await self.describe(self.topics)
        except Exception as error:  # noqa: BLE001 - an agent must not end because of its share
            self._trouble.failed(error)
            return
        self._trouble.answered()
        self._all = sum(state.partitions for state in states.values()) or self._all
