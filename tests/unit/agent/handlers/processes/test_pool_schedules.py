"""Random schedules of a pool: no task is charged with the end of a process that is not its own."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
import pytest

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.processes.pool import HandlerProcesses
from docllm.agent.handlers.processes.process import ProcessDiedError, ProcessHandler
from docllm.agent.ports.outcome import Outcome, Succeeded
from tests.support.handlers import TASK, handlers_harness

SEEDS = range(60)
TASKS = 40
MAX_PROCESSES = 4
HANDLER = ProcessHandler("invoices:extract", "document")


@dataclass
class SpoilingProcess:
    """A process in which tasks die, or leave something behind that ends it in a later run."""

    world: "World"
    runs: int = 0
    usable: bool = True
    spoilt: bool = False

    async def run(self, context: AttemptContext) -> Any:
        self.runs += 1
        self.usable = False
        kind = context.task.key.partition("/")[0]
        for _ in range(self.world.chance.randint(0, 3)):
            await asyncio.sleep(0)
            if self.spoilt and self.world.chance.random() < 0.5:
                raise ProcessDiedError("its process ended by SIGSEGV")
        if kind == "kills":
            raise ProcessDiedError("its process ended by SIGABRT")
        self.spoilt = self.spoilt or kind == "spoils"
        self.usable = True
        return kind

    def worn(self) -> bool:
        return self.world.chance.random() < 0.05

    def kill(self) -> None:
        self.world.ended += 1

    async def close(self) -> None:
        await asyncio.sleep(0)


@dataclass
class World:
    """One schedule: tasks that run at random times in a pool."""

    chance: random.Random
    ended: int = 0
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    async def start(self, _handler: ProcessHandler) -> SpoilingProcess:
        await asyncio.sleep(0)
        return SpoilingProcess(self)

    async def play(self, kind: type[HandlerProcesses]) -> None:
        pool = kind(check=lambda _path: None, start=self.start, max_processes=MAX_PROCESSES)
        harness = handlers_harness(document=partial(pool.run, HANDLER))
        slots = asyncio.Semaphore(MAX_PROCESSES)

        async def run(key: str) -> None:
            async with slots:
                value = orjson.dumps({**TASK, "id": key})
                outcome = await harness.handlers.run(harness.attempt(value=value))
                self.outcomes[key] = outcome

        kinds = self.chance.choices(("good", "spoils", "kills"), (6, 3, 1), k=TASKS)
        await asyncio.gather(*(run(f"{kind}/{number}") for number, kind in enumerate(kinds)))


def charged_to_a_neighbour(world: World) -> Iterator[str]:
    """Yield the tasks that failed though they kill no process."""
    for key, outcome in world.outcomes.items():
        if not isinstance(outcome, Succeeded) and not key.startswith("kills/"):
            yield key


def played(seed: int, kind: type[HandlerProcesses] = HandlerProcesses) -> World:
    world = World(random.Random(seed))  # noqa: S311 - a schedule
    asyncio.run(world.play(kind))
    return world


@pytest.mark.parametrize("seed", SEEDS)
def test_the_end_of_a_process_is_never_charged_to_a_neighbour(seed: int) -> None:
    """Tasks that kill their process fail, and all others succeed."""
    world = played(seed)

    assert list(charged_to_a_neighbour(world)) == []
    killers = [key for key in world.outcomes if key.startswith("kills/")]
    assert not any(isinstance(world.outcomes[key], Succeeded) for key in killers)
    assert len(world.outcomes) == TASKS


class _BlamesWhoIsThere(HandlerProcesses):
    """A planted bug: the task in the process is charged with its end, whoever caused it."""

    async def run(self, handler: ProcessHandler, context: AttemptContext) -> Any:
        return await self._run(handler, context, new=False)


class _RunsAgainInAnyProcess(HandlerProcesses):
    """A planted bug: the second run may be in a process that an earlier task has spoilt."""

    async def _take(self, handler: ProcessHandler, *, new: bool) -> Any:
        return await super()._take(handler, new=False)


@pytest.mark.parametrize("bug", [_BlamesWhoIsThere, _RunsAgainInAnyProcess])
def test_a_planted_bug_is_found(bug: type[HandlerProcesses]) -> None:
    """The checker finds a pool that blames a neighbour."""
    assert any(list(charged_to_a_neighbour(played(seed, bug))) for seed in SEEDS)
