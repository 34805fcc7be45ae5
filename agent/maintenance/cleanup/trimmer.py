"""The duty that deletes finished records from the group's topics."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from docllm.agent.inflight.partitions import Partitions
from docllm.agent.maintenance.duty import Duty
from docllm.producer.ports import TopicAdmin
from docllm.schemas.runtime import crash
from docllm.schemas.task.record.topics import Topics


@dataclass(slots=True, kw_only=True, eq=False)
class Trimmer:
    """Deletes the records that this agent has finished and that the group has committed.

    A committed offset alone is not enough: after a topic was made again, it refers to records
    that no longer exist.
    """

    topics: Topics
    admin: TopicAdmin
    partitions: Sequence[Partitions]

    def duties(self, duty: Callable[..., Duty]) -> Sequence[Duty]:
        """Return a duty for each topic, made by `duty`.

        A topic that takes no deletion, such as a compacted one, holds up no other topic.
        """
        return [
            duty(
                name=f"trimming {self.topics.name(destination)}",
                work=partial(self.trim, destination),
            )
            for destination in self.topics.destinations
        ]

    async def trim(self, destination: str) -> None:
        """Delete the finished records of a topic."""
        topic = self.topics.name(destination)
        finished = {
            partition: watermark
            for partitions in self.partitions
            for partition, watermark in partitions.marked().items()
            if partition[0] == topic
        }
        if not finished:
            return
        backlog = await self.admin.backlog(self.topics.consumer_group(destination), [topic])
        await self.admin.trim(
            {
                partition: min(offset, backlog.committed.get(partition, 0))
                for partition, offset in finished.items()
            }
        )
        crash.reach("trim.trimmed")
