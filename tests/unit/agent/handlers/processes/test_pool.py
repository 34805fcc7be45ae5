"""Attempts in processes: who runs where, and who is blamed for the end of a process."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import orjson
import pytest

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.processes import pool
from docllm.agent.handlers.processes.pool import HandlerProcesses
from docllm.agent.handlers.processes.process import (
    ProcessDiedError,
    ProcessHandler,
    ProcessUnusableError,
)
from docllm.agent.ports.outcome import Dead, Retry, Snooze, Succeeded
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.failures import ErrorClass
from tests.support.handlers import TASK, HandlersHarness, completion, handlers_harness

INVOICE = ProcessHandler("invoices:extract", "invoice")
LETTER = ProcessHandler("letters:write", "letter")


@dataclass
class FakeProcess:
    """Runs tasks as their prompts say: `die`, `spoil` (the next one dies), `hang`, `order`."""

    number: int
    runs: int = 0
    usable: bool = True
    spoilt: bool = False
    is_worn: bool = False
    ended: bool = False

    async def run(self, context: AttemptContext) -> Any:
        self.runs += 1
        self.usable = False
        context.has_begun = True
        await asyncio.sleep(0)
        order = (context.task.prompt or "").split()
        if self.spoilt or "die" in order:
            if "order" in order:
                await context.follow({"id": "a/2", "prompt": f"of process {self.number}"})
            if "pay" in order:
                await context.complete({"model": "m"})
            raise ProcessDiedError("its process ended by SIGSEGV")
        if "hang" in order:
            await asyncio.get_running_loop().create_future()
        if "order" in order:
            await context.follow({"id": "a/2", "prompt": f"of process {self.number}"})
        self.usable = True
        self.spoilt = "spoil" in order
        return self.number

    def worn(self) -> bool:
        return self.is_worn

    def kill(self) -> None:
        self.ended = True

    async def close(self) -> None:
        self.ended = True


@dataclass
class Bench:
    """Handlers that run in a pool of fake processes."""

    most: int = 2
    processes: list[FakeProcess] = field(default_factory=list)
    unusable: bool = False
    on_loss: Literal["again", "dead"] = "again"

    def __post_init__(self) -> None:
        self.pool = HandlerProcesses(
            check=lambda _path: None, start=self._start, max_processes=self.most
        )
        self.harness: HandlersHarness = handlers_harness(
            completion("Yes."),
            types={"document": TypeConfig(on_loss=self.on_loss)},
            document=partial(self.pool.run, INVOICE),
            letter=partial(self.pool.run, LETTER),
        )

    async def _start(self, _handler: ProcessHandler) -> FakeProcess:
        if self.unusable:
            raise ProcessUnusableError("no process could be started: out of memory")
        self.processes.append(FakeProcess(len(self.processes) + 1))
        return self.processes[-1]

    async def run(self, order: str = "", kind: str = "document", **attempt: Any) -> Any:
        task = {**TASK, "prompt": order + " {document}", "type": kind}
        given = self.harness.attempt(value=orjson.dumps(task), **attempt)
        return await self.harness.handlers.run(given)

    @property
    def alive(self) -> list[int]:
        return [process.number for process in self.processes if not process.ended]


def played(scene: Callable[[Bench], Any], **options: Any) -> tuple[Bench, Any]:
    bench = Bench(**options)
    return bench, asyncio.run(scene(bench))


def number_of(outcome: Any) -> int:
    assert isinstance(outcome, Succeeded), outcome
    return int(orjson.loads(outcome.body))


def test_a_process_serves_one_attempt_after_another() -> None:
    """Attempts that run together have processes of their own."""

    async def scene(bench: Bench) -> list[int]:
        alone = [number_of(await bench.run()) for _ in range(3)]
        both = await asyncio.gather(bench.run(), bench.run())
        return [*alone, *sorted(map(number_of, both))]

    bench, numbers = played(scene)

    assert numbers == [1, 1, 1, 1, 2]
    assert bench.alive == [1, 2]


def test_the_end_of_a_new_process_is_its_tasks_own_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The failure counts, and the log names the task."""
    bench, outcome = played(lambda bench: bench.run("die"))

    assert isinstance(outcome, Retry)
    assert outcome.failure.error_class is ErrorClass.HANDLER
    assert outcome.failure.text == "its process ended by SIGSEGV"
    assert bench.alive == []
    assert "task 7 (b/a/1): its process ended by SIGSEGV" in caplog.text


def test_a_task_is_not_blamed_for_what_an_earlier_one_left_behind() -> None:
    """The task's attempt goes on in a new process."""

    async def scene(bench: Bench) -> list[int]:
        return [number_of(await bench.run(order)) for order in ("spoil", "", "")]

    bench, numbers = played(scene)

    assert numbers == [1, 2, 2]
    assert bench.alive == [2]


def test_a_task_that_ends_each_process_fails_once() -> None:
    """The task pays for the calls of both runs; what it ordered in the first one is forgotten."""

    async def scene(bench: Bench) -> Any:
        await bench.run()
        return await bench.run("die pay order")

    bench, outcome = played(scene)

    assert isinstance(outcome, Retry)
    assert outcome.spent.tokens_in == 20
    assert [process.number for process in bench.processes] == [1, 2]


@pytest.mark.parametrize("before", [[], [""], ["spoil"]])
def test_what_must_not_run_twice_has_no_second_process(before: list[str]) -> None:
    """Nobody knows what it did in the process that ended, whosever fault that was."""

    async def scene(bench: Bench) -> Any:
        for order in before:
            await bench.run(order)
        return await bench.run("die")

    bench, outcome = played(scene, on_loss="dead")

    assert isinstance(outcome, Dead)
    assert outcome.failure.text.endswith('"its process ended by SIGSEGV"')
    assert len(bench.processes) == 1


def test_a_second_run_orders_its_own_follow_ups() -> None:
    """The follow-ups of the first run are not made."""

    async def scene(bench: Bench) -> Any:
        await bench.run("spoil")
        return await bench.run("order")

    _, outcome = played(scene)

    assert isinstance(outcome, Succeeded)
    assert [orjson.loads(made.value)["prompt"] for made in outcome.follow_ups] == ["of process 2"]


def test_a_cancelled_attempt_ends_its_process() -> None:
    """What it was doing would otherwise meet the next attempt."""

    async def scene(bench: Bench) -> Any:
        return await bench.run("hang", left_s=-5.0)

    bench, outcome = played(scene)

    assert outcome.failure.text == "the handler did not return within its claim"
    assert bench.alive == []


def test_there_are_no_more_processes_than_slots() -> None:
    """A process of another type that runs nothing makes room for a new one."""

    async def scene(bench: Bench) -> None:
        await asyncio.gather(bench.run(), bench.run())
        await asyncio.gather(bench.run(kind="letter"), bench.run(kind="letter"))

    bench, _ = played(scene)

    assert bench.alive == [3, 4]


def test_a_worn_process_runs_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has run often runs nothing more either."""
    monkeypatch.setattr(pool, "MAX_RUNS", 2)

    async def scene(bench: Bench) -> list[int]:
        numbers = [number_of(await bench.run()) for _ in range(3)]
        bench.processes[-1].is_worn = True
        return [*numbers, *[number_of(await bench.run()) for _ in range(2)]]

    _, numbers = played(scene)

    assert numbers == [1, 1, 2, 2, 3]


def test_a_handler_is_checked_once() -> None:
    """Settings that are read again check new handlers alone."""
    checked: list[str] = []

    async def start(_handler: ProcessHandler) -> FakeProcess:
        raise AssertionError

    processes = HandlerProcesses(check=checked.append, start=start, max_processes=1)
    for path in ("a:b", "a:b", "a:c"):
        processes.require_usable(path)

    assert checked == ["a:b", "a:c"]


def test_a_process_that_cannot_start_says_nothing_about_the_task() -> None:
    """The task comes back uncounted."""
    _, outcome = played(lambda bench: bench.run(), unusable=True)

    assert isinstance(outcome, Snooze)
    assert outcome.failure.error_class is ErrorClass.INTERNAL
    assert outcome.failure.text.startswith("no process could be started")
