"""Tasks over which agents were lost run in processes of their own, whatever their type."""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.processes.pool import HandlerProcesses
from docllm.agent.handlers.processes.process import (
    ProcessDiedError,
    ProcessHandler,
    ProcessUnusableError,
)
from docllm.agent.handlers.processes.suspects import run_suspect
from docllm.agent.ports import SUSPECT_LOSSES
from docllm.agent.ports.outcome import Dead, Outcome, Retry, Spent, Succeeded
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.failures import Disposition, ErrorClass
from tests.support.handlers import HandlersHarness, completion, handlers_harness, succeeded


async def of_agent(context: AttemptContext) -> str:
    return f"{context.task.type} in the agent"


@dataclass
class OwnProcess:
    """Ends as it is told to."""

    end: str
    runs: int = 0
    usable: bool = False
    ended: bool = False

    async def run(self, context: AttemptContext) -> Any:
        self.runs += 1
        if self.end == "hang":
            await asyncio.get_running_loop().create_future()
        if self.end == "die":
            await context.complete({"model": "m", "messages": []})
            raise ProcessDiedError("its process ended by SIGSEGV")
        self.usable = True
        return f"run {self.runs} of its process"

    def worn(self) -> bool:
        return False

    def kill(self) -> None:
        self.ended = True

    async def close(self) -> None:
        self.ended = True


@dataclass
class Bench:
    """Handlers whose suspects run in fake processes."""

    end: str = "return"
    rules: TypeConfig = field(default_factory=lambda: TypeConfig(handler="invoices:extract"))
    started: list[str] = field(default_factory=list)
    processes: list[OwnProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        pool = HandlerProcesses(check=lambda _path: None, start=self._start, max_processes=2)
        apart = ProcessHandler("invoices:extract", "document")
        is_apart = self.rules.run == "process"
        of_type: dict[str, Any] = {"document": partial(pool.run, apart) if is_apart else of_agent}
        self.harness: HandlersHarness = handlers_harness(
            completion("Yes."),
            types={"document": self.rules},
            run_suspect=partial(run_suspect, pool),
            **(of_type if self.rules.handler else {}),
        )

    async def _start(self, handler: ProcessHandler) -> OwnProcess:
        self.started.append(handler.path)
        if self.end == "unusable":
            raise ProcessUnusableError("module invoices cannot be imported")
        self.processes.append(OwnProcess(self.end))
        return self.processes[-1]

    def run(self, *, agents_lost: int = SUSPECT_LOSSES, **attempt: Any) -> Outcome:
        return self.harness.run(agents_lost=agents_lost, **attempt)


def test_a_suspect_runs_in_a_process_of_its_own() -> None:
    """Nothing else ever runs in it. Other tasks run as their type says."""
    bench = Bench()

    results = [bench.run(agents_lost=lost) for lost in (0, 1, 2, 3)]

    bodies = [outcome.body for outcome in results if isinstance(outcome, Succeeded)]
    assert bodies == [b'"document in the agent"'] * 2 + [b'"run 1 of its process"'] * 2
    assert bench.started == ["invoices:extract"] * 2
    assert all(process.ended for process in bench.processes)


def test_a_suspect_that_ends_its_process_is_dead() -> None:
    """The suspect has shown what it does; its costs are booked, its losses are not forgotten."""
    outcome = Bench("die").run()

    assert isinstance(outcome, Dead)
    assert outcome.disposition is Disposition.WORKER_LOST
    assert outcome.failure.error_class is ErrorClass.WORKER_LOST
    assert outcome.failure.text == (
        "2 agents were lost while they worked on it; then its process ended by SIGSEGV"
    )
    assert outcome.failure.keeps_losses
    assert outcome.spent.tokens_in == 10


def test_a_suspect_that_does_not_end_stays_one() -> None:
    """The attempt counts, and the next one has a process of its own, too."""
    bench = Bench("hang")

    outcome = bench.run(left_s=-5.0)

    assert isinstance(outcome, Retry)
    assert outcome.failure.text == "the handler did not return within its claim"
    assert outcome.failure.keeps_losses
    assert bench.processes[0].ended


def test_a_suspect_of_a_built_in_type_has_its_process_too() -> None:
    """The process finds the built-in handler by its name."""
    bench = Bench(rules=TypeConfig())

    bench.run()

    assert bench.started == ["docllm.agent.handlers.builtin.chat:chat"]


def test_a_suspect_that_no_process_can_run_runs_in_the_agent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If it ends the agent, it is found as before."""
    outcome = Bench("unusable").run()

    assert outcome == Succeeded(b'"document in the agent"', outcome.codec, Spent())  # type: ignore[union-attr]
    assert "runs in the agent, although 2 agents were lost over it" in caplog.text


def test_the_process_of_a_type_that_runs_in_processes_is_no_witness() -> None:
    """No such task has ended an agent, so the end of its process counts as usual."""
    bench = Bench("die", TypeConfig(handler="invoices:extract", run="process"))

    outcome = bench.run()

    assert isinstance(outcome, Retry)
    assert outcome.failure.error_class is ErrorClass.HANDLER
    assert not outcome.failure.keeps_losses


def test_a_long_document_is_answered_in_the_agent() -> None:
    """The built-in handler runs no code of a person's own, and needs much of the agent."""
    bench = Bench(rules=TypeConfig())
    line = {"id": "a", "type": "map-reduce", "prompt": "{document}", "input": {"text": "x"}}

    succeeded(bench.run(task=line))

    assert bench.started == []
