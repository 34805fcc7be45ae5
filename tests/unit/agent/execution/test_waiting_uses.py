"""Uses of named limits: they begin in order, and no more of them than the limit allows."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from docllm.agent.execution.waiting_uses import ONE_ANSWER_S, WaitingUses
from docllm.agent.handlers.named_limits import LimitError
from docllm.agent.quota.configured import ConfiguredQuotas
from docllm.agent.quota.quotas import Quotas
from docllm.agent.quota.share import ShareGrantStore
from docllm.agent.quota.sync import QuotaSync
from docllm.schemas.settings.config import Config
from docllm.schemas.settings.quota import NamedLimit
from tests.simulation.eventloop import Process, VirtualClock, VirtualLoop
from tests.support.memory_quota import MemoryQuotaServer

Result = TypeVar("Result")


class UsesHarness:
    """Two agents that share the limit `crm`, on virtual time; `began_s` are the starts of uses."""

    def __init__(self, limit: NamedLimit) -> None:
        self.loop = VirtualLoop(random.Random(1))  # noqa: S311 - the same order each time
        self.clock = VirtualClock(self.loop)
        self.server = MemoryQuotaServer(self.clock.now_s)
        configured = ConfiguredQuotas(config=Config(limits={"crm": limit}), group="g")
        self.agents: list[WaitingUses] = []
        self.syncs: list[QuotaSync] = []
        for name in ("a", "b"):
            quotas = Quotas(configured.find)
            uses = WaitingUses(quotas=quotas, configured=configured, clock=self.clock)
            self.agents.append(uses)
            self.syncs.append(
                QuotaSync(
                    quotas=quotas,
                    store=self.server.store(name),
                    share=ShareGrantStore(partitions=lambda: 0.5, clock=self.clock),
                    clock=self.clock,
                    jitter=lambda: 0.5,
                    granted=uses.begin_all,
                )
            )
        self.began_s: list[tuple[int, float]] = []
        self.running = self.most = 0

    def run(self, story: Callable[[], Awaitable[Result]]) -> Result:
        """Run a story while both agents exchange with the store."""

        async def told() -> Result:
            syncs = [asyncio.create_task(sync.run()) for sync in self.syncs]
            try:
                return await story()
            finally:
                for sync in syncs:
                    sync.cancel()
                await asyncio.gather(*syncs, return_exceptions=True)

        try:
            ended: Result = self.loop.run_until_complete(self.loop.spawn(Process("test"), told()))
        finally:
            self.loop.close()
        return ended

    async def use(self, number: int, *, agent: int = 0, for_s: float = 1.0) -> None:
        """Use what the limit is about, once it has room."""
        permit = await self.agents[agent].wait_for_use("crm", 1000.0)
        assert permit is not None
        self.began_s.append((number, self.clock.now_s()))
        self.running += 1
        self.most = max(self.most, self.running)
        await self.clock.sleep(for_s)
        self.running -= 1
        self.agents[agent].end_use(permit)


def test_agents_together_run_as_many_uses_as_the_limit_says() -> None:
    """Those of one agent begin in the order of asking."""
    harness = UsesHarness(NamedLimit(in_flight=3))

    async def story() -> None:
        uses = []
        for number in range(30):
            uses.append(asyncio.create_task(harness.use(number, agent=number % 2)))
            await harness.clock.sleep(0.01)
        await asyncio.gather(*uses)

    harness.run(story)

    assert harness.most == 3
    for agent in (0, 1):
        starts_s = [at_s for number, at_s in sorted(harness.began_s) if number % 2 == agent]
        assert starts_s == sorted(starts_s)


def test_agents_together_begin_as_many_uses_a_minute_as_the_limit_says() -> None:
    """Uses of both agents take their part."""
    harness = UsesHarness(NamedLimit(rpm=120))

    async def story() -> None:
        await asyncio.gather(
            *(harness.use(number, agent=number % 2, for_s=0.0) for number in range(120))
        )

    harness.run(story)

    starts_s = [at_s for _, at_s in harness.began_s]
    assert 58 < max(starts_s) < 65
    assert sum(at_s < 30 for at_s in starts_s) <= 62


def test_a_use_that_may_not_begin_in_time_is_asked_for_no_more() -> None:
    """At least one answer of the store is waited for, and a later use is served."""
    harness = UsesHarness(NamedLimit(in_flight=1))

    async def story() -> None:
        uses, other = harness.agents
        held = await uses.wait_for_use("crm", 10.0)
        assert held is not None
        began_s = harness.clock.now_s()
        assert await other.wait_for_use("crm", 0.0) is None
        assert harness.clock.now_s() - began_s == pytest.approx(ONE_ANSWER_S)
        uses.end_use(held)
        assert await other.wait_for_use("crm", 10.0) is not None

    harness.run(story)


@pytest.mark.parametrize(
    "limit", [NamedLimit(in_flight=1), NamedLimit(rpm=60), NamedLimit(in_flight=2, rpm=60)]
)
@pytest.mark.parametrize("paused_s", [3.0, 60.0])
def test_a_free_limit_that_rested_has_room_for_a_use_that_is_tried_once(
    limit: NamedLimit, paused_s: float
) -> None:
    """After a pause the store first learns what runs, and it must not answer too late for that."""
    harness = UsesHarness(limit)

    async def story() -> None:
        for _ in range(20):
            await harness.clock.sleep(paused_s)
            permit = await harness.agents[0].wait_for_use("crm", 0.0)
            assert permit is not None
            harness.agents[0].end_use(permit)

    harness.run(story)


def test_one_answer_is_enough_for_a_use_that_has_room() -> None:
    """A wait of 0 s is not too short for it."""
    harness = UsesHarness(NamedLimit(in_flight=1))

    async def story() -> None:
        await harness.clock.sleep(2.0)
        await harness.use(0)
        permit = await harness.agents[1].wait_for_use("crm", 0.0)
        assert permit is not None

    harness.run(story)


def test_a_use_that_is_cancelled_takes_no_place() -> None:
    """Also if its permit came in the same moment."""
    harness = UsesHarness(NamedLimit(in_flight=1))

    async def story() -> None:
        uses = harness.agents[0]
        held = await uses.wait_for_use("crm", 10.0)
        assert held is not None
        waiting = [asyncio.create_task(uses.wait_for_use("crm", 10.0)) for _ in range(2)]
        await harness.clock.sleep(1.0)
        waiting[0].cancel()
        uses.end_use(held)
        waiting[1].cancel()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends)
        assert await uses.wait_for_use("crm", 10.0) is not None

    harness.run(story)


def test_an_unknown_limit_is_an_error() -> None:
    """It says which are known."""
    harness = UsesHarness(NamedLimit(in_flight=1))

    async def story() -> None:
        with pytest.raises(LimitError, match=r"no limit named 'x'; add a section .*known are: crm"):
            await harness.agents[0].wait_for_use("x", 1.0)

    harness.run(story)
