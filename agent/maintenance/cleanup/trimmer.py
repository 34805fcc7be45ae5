"""The duty that deletes finished records from the group's topics."""

from collections.abc import Callable, Sequence
from functools import partial

from docllm.agent.inflight.partitions import Partitions
from docllm.agent.maintenance.duty import Duty
from docllm.producer.ports import TopicAdmin
from docllm.schemas.runtime import crash
from docllm.schemas.task.record.topics import Topics


class Trimmer:
    """Deletes the records that this agent has finished and that the group has committed.

    A committed offset alone is not enough: after a topic was made again, it refers to records
    that no longer exist.
    """

    def __init__(
        self, *, topics: Topics, admin: TopicAdmin, partitions: Sequence[Partitions]
    ) -> None:
        self._topics = topics
        self._admin = admin
        self._partitions = partitions

    def duties(self, duty: Callable[..., Duty]) -> Sequence[Duty]:
        """Return a duty for each topic, made by `duty`.

        A topic that takes no deletion, such as a compacted one, holds up no other topic.
        """
        return [
            duty(
                name=f"trimming {self._topics.name(destination)}",
                work=partial(self.trim, destination),
            )
            for destination in self._topics.destinations
        ]

    async def trim(self, destination: str) -> None:
        """Delete the finished records of a topic."""
        topic = self._topics.name(destination)
        finished = {
            partition: watermark
            for partitions in self._partitions
            for partition, watermark in partitions.marked().items()
            if partition[0] == topic
        }
        if not finished:
            return
        backlog = await self._admin.backlog(self._topics.consumer_group(destination), [topic])
        await self._admin.trim(
            {
                partition: min(offset, backlog.committed.get(partition, 0))
                for partition, offset in finished.items()
            }
        )
        crash.reach("trim.trimmed")
