"""An agent's share of the partitions."""

import asyncio
from collections.abc import Mapping, Sequence

from agent.inflight.limits import Limits
from agent.inflight.partition_share import PartitionShare
from agent.inflight.partitions import Partitions
from agent.ports import Partition, TopicState
from schemas.errors import UnreachableError
from schemas.runtime.clock import SystemClock

TASKS, BULK, TIER = "g.tasks", "g.tasks.bulk", "g.retry.30s"


class Bus:
    """Topics with four partitions each, behind a server that may be away."""

    away = False

    async def describe(self, topics: Sequence[str]) -> Mapping[str, TopicState]:
        if self.away:
            raise UnreachableError("Kafka does not answer")
        return {topic: TopicState("id", 4, {}) for topic in topics}


def look(share: PartitionShare) -> None:
    async def briefly() -> None:
        duty = asyncio.create_task(share.run())
        await asyncio.sleep(0)
        duty.cancel()

    asyncio.run(briefly())


def test_the_partitions_of_all_lanes_count_together() -> None:
    """Those of other topics do not count, and a revoked one no longer counts."""
    partitions, bus = Partitions({}, limits=Limits()), Bus()
    share = PartitionShare(
        partitions=partitions, topics=(TASKS, BULK), describe=bus.describe, clock=SystemClock()
    )
    mine = [Partition(TASKS, "id", 0, 1), Partition(BULK, "id", 3, 1), Partition(TIER, "id", 0, 1)]
    partitions.assign(mine)

    assert share() == 0.0
    look(share)
    assert share() == 0.25
    partitions.revoke(mine[:1])
    assert share() == 0.125


def test_while_the_bus_is_away_the_number_that_was_known_holds() -> None:
    """Without any, nothing is taken."""
    partitions, bus = Partitions({}, limits=Limits()), Bus()
    share = PartitionShare(
        partitions=partitions, topics=(TASKS,), describe=bus.describe, clock=SystemClock()
    )
    partitions.assign([Partition(TASKS, "id", 0, 1)])
    bus.away = True
    look(share)
    assert share() == 0.0
    bus.away = False
    look(share)
    bus.away = True
    look(share)
    assert share() == 0.25
