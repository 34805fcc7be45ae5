"""Topics of the broker in memory, and the positions of groups on them."""

from collections.abc import Mapping, Sequence

from docllm.producer.bus.topic_family import settings_of
from docllm.producer.ports import Backlog, TopicState
from docllm.schemas.errors import UnsafeStateError
from docllm.schemas.runtime.clock import Clock
from tests.simulation.broker import Broker, Cursor
from tests.simulation.weather import Weather


class SimTopicAdmin:
    """Topics, and the positions of groups on them."""

    def __init__(self, *, broker: Broker, clock: Clock, weather: Weather) -> None:
        self._broker = broker
        self._clock = clock
        self._weather = weather

    async def cluster_id(self) -> str:
        """Return the id of the cluster."""
        return "cluster"

    async def describe(self, topics: Sequence[str]) -> dict[str, TopicState]:
        """Return the topics that exist."""
        await self._wait()
        existing = {
            name: self._broker.topics[name] for name in topics if name in self._broker.topics
        }
        return {
            name: TopicState(topic.topic_id, len(topic.logs), settings_of(name))
            for name, topic in existing.items()
        }

    async def create(self, topic: str, partitions: int, replication_factor: int | None) -> None:
        """Create a topic."""
        await self._wait()
        if topic in self._broker.topics:
            raise UnsafeStateError(f"topic {topic} exists")
        self._broker.create(topic, partitions)

    async def configure(self, topic: str) -> None:
        """Do nothing: there are no settings."""

    async def grow(self, topic: str, partitions: int) -> None:
        """Add partitions."""
        await self._wait()
        if partitions < len(self._broker.topics[topic].logs):
            raise UnsafeStateError(f"topic {topic} has more partitions")
        self._broker.grow(topic, partitions)

    async def backlog(self, group_id: str, topics: Sequence[str]) -> Backlog:
        """Return the position of a consumer group id."""
        await self._wait()
        group, lag, oldest = self._broker.group(group_id), 0, []
        places = [
            (name, number)
            for name in topics
            if name in self._broker.topics
            for number in range(len(self._broker.topics[name].logs))
        ]
        for place in places:
            log, (start, _) = self._broker.log(place), group.start(place)
            lag += log.end - start
            if start < log.end:
                oldest.append(log.records[start].timestamp_ms)
        committed = {place: group.committed[place] for place in places if place in group.committed}
        return Backlog(lag, min(oldest, default=None), committed)

    async def trim(self, offsets: Mapping[Cursor, int]) -> None:
        """Delete the records below these offsets."""
        if any(offset < 0 for offset in offsets.values()):
            raise ValueError("a negative offset")
        await self._wait()
        for place, offset in offsets.items():
            log = self._broker.log(place)
            log.low = max(log.low, min(offset, log.end))

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    async def _wait(self) -> None:
        await self._clock.sleep(
            self._weather.delay_s("broker", 0.01)
            + self._weather.away_s("broker", self._clock.now_s())
        )
