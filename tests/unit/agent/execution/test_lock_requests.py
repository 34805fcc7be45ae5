"""The locks of one agent's attempts: few statements, nothing lost, in the order of asking."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

import pytest

from docllm.agent.execution.lock_requests import (
    READ_EVERY_S,
    SHOWN_AFTER_S,
    LocksOfAttempt,
    ResourceLocks,
)
from docllm.agent.handlers import LockError
from docllm.agent.ports.lock_table import NOBODY, Claimant, Held, LockChange
from docllm.schemas.task.owner import owner_of
from tests.simulation.eventloop import Process, VirtualClock, VirtualLoop

Result = TypeVar("Result")


class MemoryTable:
    """Locks in memory; `ended` are claims that have ended, and `failures` writes that fail."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.holders: dict[str, tuple[Claimant, int]] = {}
        self.waits: dict[str, list[Claimant]] = {}
        self.ended: set[Claimant] = set()
        self.failures = 0
        self.statements = 0

    async def change(self, changes: Mapping[str, LockChange]) -> list[Held]:
        self.statements += 1
        held = [self._change(name, change) for name, change in changes.items()]
        await self._clock.sleep(0.01)
        if self.failures:
            self.failures -= 1
            raise OSError("the answer was lost")
        return held

    def _change(self, name: str, change: LockChange) -> Held:
        waits = self.waits.setdefault(name, [])
        holder, token = self.holders.get(name, (NOBODY, 0))
        for claimant in change.leaving:
            holder = NOBODY if claimant == holder else holder
            waits[:] = [other for other in waits if other != claimant]
        waits += [asks for asks in change.asking if asks not in {*waits, holder}]
        if holder == NOBODY or holder in self.ended:
            alive = [claimant for claimant in waits if claimant not in self.ended]
            holder, token = (alive[0], token + 1) if alive else (NOBODY, token)
            waits[:] = [other for other in waits if other != holder]
        self.holders[name] = (holder, token)
        return Held(name, holder, token, alive=holder != NOBODY)

    async def read_holders(self, names: Iterable[str]) -> list[Held]:
        self.statements += 1
        return [
            Held(name, holder, token, alive=holder != NOBODY and holder not in self.ended)
            for name, (holder, token) in self.holders.items()
            if name in names
        ]


class LocksHarness:
    """Two agents on one table, on virtual time."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(random.Random(1))  # noqa: S311 - the same order each time
        self.clock = VirtualClock(self.loop)
        self.table = MemoryTable(self.clock)
        self.agents = [ResourceLocks(table=self.table, clock=self.clock) for _ in range(2)]
        self.order: list[int] = []

    def run(self, story: Callable[[], Awaitable[Result]]) -> Result:
        async def told() -> Result:
            running = [asyncio.create_task(self._serve(locks)) for locks in self.agents]
            try:
                return await story()
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

        try:
            ended: Result = self.loop.run_until_complete(self.loop.spawn(Process("test"), told()))
        finally:
            self.loop.close()
        return ended

    async def _serve(self, locks: ResourceLocks) -> None:
        while True:
            try:
                await locks.run_once()
            except OSError:
                continue

    def attempt(self, number: int, agent: int = 0) -> LocksOfAttempt:
        return self.agents[agent].of(number, owner_of(number, 0))

    async def hold(self, number: int, name: str = "a", *, agent: int = 0, for_s: float = 1) -> int:
        """Take a lock, note who has it, and give it back; return its token."""
        attempt = self.attempt(number, agent)
        attempt.ask(name)
        token = await attempt.wait(name, 1000)
        assert token is not None
        self.order.append(number)
        await self.clock.sleep(for_s)
        attempt.give_back(name)
        return token


@pytest.fixture
def harness() -> LocksHarness:
    """Two agents."""
    return LocksHarness()


def test_attempts_of_all_agents_hold_a_lock_in_turn(harness: LocksHarness) -> None:
    """Who asks first has it first, in whatever agent, and each has a higher token."""

    async def story() -> list[int]:
        holds = []
        for number in range(1, 7):
            holds.append(asyncio.create_task(harness.hold(number, agent=number % 2)))
            await harness.clock.sleep(0.1)
        return await asyncio.gather(*holds)

    assert harness.run(story) == [1, 2, 3, 4, 5, 6]
    assert harness.order == [1, 2, 3, 4, 5, 6]


def test_those_who_ask_at_the_same_time_keep_their_order(harness: LocksHarness) -> None:
    """One transaction takes all of them, in the order of asking."""

    async def story() -> None:
        attempts = [harness.attempt(number) for number in range(1, 41)]
        for attempt in attempts:
            attempt.ask("a")
        for token, attempt in enumerate(attempts, 1):
            assert await attempt.wait("a", 1000) == token
            attempt.give_back("a")

    harness.run(story)


def test_hundreds_that_wait_cost_a_few_statements(harness: LocksHarness) -> None:
    """The agent looks for all of its waits at once, a few times a second."""

    async def story() -> None:
        holding = harness.attempt(1)
        holding.ask("a")
        await holding.wait("a", 10)
        waiting = [asyncio.create_task(harness.hold(10 + number)) for number in range(300)]
        await harness.clock.sleep(1)
        before = harness.table.statements
        await harness.clock.sleep(100)
        assert harness.table.statements - before <= 100 / READ_EVERY_S + 1
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    harness.run(story)


def test_an_agent_without_waits_asks_nothing(harness: LocksHarness) -> None:
    """A lock that is held costs nothing until it is given back."""

    async def story() -> None:
        await harness.hold(1, for_s=0)
        await harness.hold(2, for_s=1000)

    harness.run(story)
    assert harness.table.statements <= 4


def test_the_lock_of_a_claim_that_ended_goes_on(harness: LocksHarness) -> None:
    """A holder that was lost gives nothing back: those who wait notice it."""

    async def story() -> int:
        lost = harness.attempt(1, agent=1)
        lost.ask("a")
        await lost.wait("a", 10)
        waiting = asyncio.create_task(harness.hold(2))
        await harness.clock.sleep(5)
        harness.table.ended.add(Claimant(1, owner_of(1, 0)))
        return await waiting

    assert harness.run(story) == 2


@pytest.mark.parametrize("failures", [1, 3])
def test_a_lost_answer_loses_no_order(harness: LocksHarness, failures: int) -> None:
    """What was asked and given back meanwhile holds, whatever was written before."""

    async def story() -> None:
        first, second, third = (harness.attempt(number) for number in (1, 2, 3))
        harness.table.failures = failures
        for attempt in (first, second, third):
            attempt.ask("a")
        await harness.clock.sleep(0.005)  # the write is under way
        first.give_back("a")
        second.give_back("a")
        second.ask("a")
        assert await third.wait("a", 100)
        third.give_back("a")
        assert await second.wait("a", 100)
        second.give_back("a")
        second.ask("a")
        second.give_back("a")
        assert await harness.hold(4, agent=1)

    harness.run(story)


def test_a_wait_ends_with_its_time(harness: LocksHarness) -> None:
    """Who waited in vain is passed over."""

    async def story() -> None:
        holding, waiting = harness.attempt(1), harness.attempt(2)
        holding.ask("a")
        await holding.wait("a", 10)
        waiting.ask("a")
        assert await waiting.wait("a", 10) is None
        waiting.give_back("a")
        third = asyncio.create_task(harness.hold(3, agent=1))
        await harness.clock.sleep(1)
        holding.give_back("a")
        await third

    harness.run(story)


def test_a_lock_is_tried_once(harness: LocksHarness) -> None:
    """The answer is the first one; the lock stays with its holder, or is taken."""

    async def story() -> list[int | None]:
        first, second = harness.attempt(1), harness.attempt(2)
        tries = []
        for attempt in (first, second):
            attempt.ask("a")
            tries.append(await attempt.wait("a", 60.0, once=True))
        return tries

    began_s = harness.clock.now_s()
    held, refused = harness.run(story)

    assert held is not None
    assert refused is None
    assert harness.clock.now_s() - began_s < 1


def test_the_end_of_an_attempt_gives_its_locks_back(harness: LocksHarness) -> None:
    """A lock that is held, and one that is waited for."""

    async def story() -> None:
        first, second = harness.attempt(1), harness.attempt(2)
        for attempt, name in ((first, "a"), (first, "b"), (second, "c"), (first, "c")):
            attempt.ask(name)
        await harness.clock.sleep(1)
        first.close()
        second.close()
        for name in "abc":
            await harness.hold(3, name)

    harness.run(story)


def test_an_attempt_takes_a_lock_once(harness: LocksHarness) -> None:
    """To wait for its own lock would take all of its time."""

    async def story() -> None:
        attempt = harness.attempt(1)
        attempt.ask("a")
        with pytest.raises(LockError, match="this attempt holds the lock a already"):
            attempt.ask("a")
        await attempt.wait("a", 10)
        with pytest.raises(LockError, match="take it once"):
            attempt.ask("a")
        attempt.give_back("a")
        attempt.ask("a")
        assert await attempt.wait("a", 10)

    harness.run(story)


def test_a_long_wait_is_reported(harness: LocksHarness) -> None:
    """The report names the lock, its holder, and how many tasks wait for how long."""

    async def story() -> None:
        locks, holding = harness.agents[0], harness.attempt(1, agent=1)
        holding.ask("a")
        await holding.wait("a", 10)
        waiting = [asyncio.create_task(harness.hold(number)) for number in (2, 3)]
        await harness.clock.sleep(SHOWN_AFTER_S - 1)
        assert locks.reasons(harness.clock.now_s()) == []
        await harness.clock.sleep(2)
        (reason,) = locks.reasons(harness.clock.now_s())
        assert (reason.code, reason.name, reason.text) == ("lock_held", "a", "task 1")
        assert (reason.count, round(reason.seconds)) == (2, SHOWN_AFTER_S + 1)
        holding.give_back("a")
        await asyncio.gather(*waiting)
        assert locks.reasons(harness.clock.now_s()) == []
        assert harness.agents[1].reasons(harness.clock.now_s()) == []

    harness.run(story)
