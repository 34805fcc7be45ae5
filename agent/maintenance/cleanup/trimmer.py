"""The duty that deletes finished records from the group's topics."""

from collections.abc import Callable, Sequence
from functools import partial

from docllm.agent.inflight.partitions import Partitions
from docllm.agent.maintenance.duty import Duty
from docllm.producer.ports import TopicAdmin
from docllm.schemas.runtime import crash
from docllm.schemas.task.record.topics import Topics


def trim_duties(
    duty: Callable[..., Duty],
    topics: Topics,
    admin: TopicAdmin,
    partitions: Sequence[Partitions],
) -> Sequence[Duty]:
    """Return a duty for each topic, made by `duty`.

    A topic that takes no deletion, such as a compacted one, holds up no other topic.
    """
    return [
        duty(
            name=f"trimming {topics.name(destination)}",
            work=partial(_trim, topics, admin, partitions, destination),
        )
        for destination in topics.destinations
    ]


async def _trim(
    topics: Topics, admin: TopicAdmin, partitions: Sequence[Partitions], destination: str
) -> None:
    """Delete a topic's records that this agent has finished and that the group has committed.

    A committed offset alone is not enough: after a topic was made again, it refers to records
    that no longer exist.
    """
    topic = topics.name(destination)
    finished = {
        partition: watermark
        for of_source in partitions
        for partition, watermark in of_source.marked().items()
        if partition[0] == topic
    }
    if not finished:
        return
    backlog = await admin.backlog(topics.consumer_group(destination), [topic])
    await admin.trim(
        {
            partition: min(offset, backlog.committed.get(partition, 0))
            for partition, offset in finished.items()
        }
    )
    crash.reach("trim.trimmed")
