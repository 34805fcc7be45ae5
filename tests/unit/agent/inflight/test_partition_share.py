"""An agent's share of the partitions."""

import asyncio
from collections.abc import Mapping, Sequence

from docllm.agent.inflight.limits import InFlightLimits
from docllm.agent.inflight.partition_share import PartitionShare
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.ports import Partition, TopicState
from docllm.agent.quota.grants import Charge, QuotaRequest, WaitingCall
from docllm.agent.quota.share import ShareGrantStore
from docllm.schemas.errors import UnreachableError
from docllm.schemas.runtime.clock import SystemClock
from docllm.schemas.settings.quota import QuotaLimits
from tests.support.clock import HandClock

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
    """Partitions of other topics do not count, nor does a revoked one."""
    partitions, bus = Partitions({}, limits=InFlightLimits()), Bus()
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


async def test_an_agent_with_no_partition_of_a_lane_still_runs_what_comes_from_a_tier() -> None:
    """There may be more agents than partitions, and each topic of a tier is assigned by itself.

    Its limit is small, so that many such agents together stay within the caution of shares.
    """
    partitions, clock = Partitions({}, limits=InFlightLimits()), HandClock()
    share = PartitionShare(
        partitions=partitions, topics=(TASKS,), describe=Bus().describe, clock=SystemClock()
    )
    partitions.assign([Partition(TIER, "id", 0, 1)])
    duty = asyncio.create_task(share.run())
    await asyncio.sleep(0)
    duty.cancel()
    store, granted = ShareGrantStore(partitions=share, clock=clock), []
    ask = WaitingCall(charge=Charge(tokens_in=100, tokens_out=100))
    for limits in (QuotaLimits(rpm=600), QuotaLimits(tpm=60_000)):
        granted.append(0)
        for sequence in range(1, 121):
            clock.at_s += 0.5
            request = QuotaRequest(
                key=str(limits), limits=limits, sequence=sequence, running=0, waiting=(ask,)
            )
            (answer,) = await store.exchange([request])
            granted[-1] += sum(answer.granted)
    calls, calls_by_tokens = granted

    assert 6 <= calls <= 600 / 4 / 8
    assert 3 <= calls_by_tokens <= 300 / 4 / 8


def test_while_the_bus_is_away_the_number_that_was_known_holds() -> None:
    """Without any, nothing is taken."""
    partitions, bus = Partitions({}, limits=InFlightLimits()), Bus()
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
