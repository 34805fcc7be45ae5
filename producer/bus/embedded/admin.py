"""Topics of the embedded bus, and the positions of groups on them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from docllm.producer.bus.embedded import topics as bus_topics
from docllm.producer.bus.embedded.executor import BusExecutor
from docllm.producer.bus.topic_family import settings_of
from docllm.producer.ports import Backlog, TopicState
from docllm.schemas.runtime.executors import Executor


class EmbeddedTopicAdmin:
    """TopicAdmin on the bus file.

    Settings are stored and shown only: the bus itself has no retention and one kind of timestamp.
    """

    def __init__(self, path: Path, *, executor: Executor | None = None) -> None:
        self._bus = BusExecutor(path, executor=executor)

    async def cluster_id(self) -> str:
        """Return the id of the file."""
        return await self._bus.run(bus_topics.cluster_id)

    async def describe(self, topics: Sequence[str]) -> dict[str, TopicState]:
        """Return the state of each given topic that exists."""
        return await self._bus.run(lambda file: bus_topics.states_of(file, topics))

    async def create(
        self,
        topic: str,
        partitions: int,
        replication_factor: int | None,  # noqa: ARG002 - one file, one replica
    ) -> None:
        """Create a topic; raise UnsafeStateError when it exists."""
        settings = settings_of(topic)
        await self._bus.run(lambda file: bus_topics.create(file, topic, partitions, settings))

    async def configure(self, topic: str) -> None:
        """Set a topic's settings to those that `create` gives."""
        await self._bus.run(lambda file: bus_topics.configure(file, topic, settings_of(topic)))

    async def grow(self, topic: str, partitions: int) -> None:
        """Add partitions; raise UnsafeStateError unless `partitions` exceeds their number."""
        await self._bus.run(lambda file: bus_topics.grow(file, topic, partitions))

    async def backlog(self, group_id: str, topics: Sequence[str]) -> Backlog:
        """Return the position of a group id."""
        return await self._bus.run(lambda file: bus_topics.backlog(file, group_id, topics))

    async def trim(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Delete the records below these offsets; raise ValueError for a negative one."""
        await self._bus.run(lambda file: bus_topics.trim(file, offsets))

    async def close(self) -> None:
        """Close the file."""
        await self._bus.close()
