"""The simulation's bus as the suites need it, without faults and on virtual time.

The suites show that it keeps the contract of the real buses.
"""

import random
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from docllm.agent.consumer.known_topics import StoredIdsReader
from docllm.agent.ports import Source
from tests.contract.support.parts import Parts
from tests.simulation.broker import SESSION_S, Broker
from tests.simulation.bus import SimSource
from tests.simulation.eventloop import VirtualClock, VirtualLoop
from tests.simulation.publisher import SimPublisher
from tests.simulation.topic_admin import SimTopicAdmin
from tests.simulation.weather import Weather
from tests.support.doubles import double_of


def parts() -> Parts:
    rng = random.Random(1)  # noqa: S311 - the same run each time
    loop = VirtualLoop(rng)
    clock, weather = VirtualClock(loop), Weather(rng)
    broker = Broker(rng=rng, utc_s=clock.utc_s, turn=lambda: 0)
    known: dict[str, str] = {}

    async def source(names: Sequence[str], group_id: str) -> Source:
        return SimSource(
            broker=broker,
            topics=names,
            group_id=group_id,
            topic_ids=double_of(StoredIdsReader, current=lambda: known),
            clock=clock,
            weather=weather,
        )

    async def publisher() -> SimPublisher:
        return SimPublisher(broker=broker, clock=clock, weather=weather)

    async def admin() -> SimTopicAdmin:
        return SimTopicAdmin(broker=broker, clock=clock, weather=weather)

    async def kill(source: Source) -> None:
        assert isinstance(source, SimSource)
        source._passing.cancel()
        for topic in source._topics:
            broker.readers[topic].remove(source._wake)

    async def delete_topic(topic: str) -> None:
        broker.delete(topic)

    async def delete_offsets(group_id: str) -> None:
        broker.group(group_id).committed.clear()

    async def set_offsets(group_id: str, offsets: Mapping[tuple[str, int], int]) -> None:
        broker.group(group_id).committed.update(offsets)

    def run(test: Coroutine[Any, Any, None]) -> None:
        try:
            loop.run_until_complete(test)
        finally:
            loop.bury()

    return Parts(
        source=source,
        publisher=publisher,
        admin=admin,
        kill=kill,
        delete_topic=delete_topic,
        delete_offsets=delete_offsets,
        set_offsets=set_offsets,
        session_s=SESSION_S,
        known=known,
        run=run,
    )
