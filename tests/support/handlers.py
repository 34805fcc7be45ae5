"""Helpers for tests of handlers: handlers over a fake LLM."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

from docllm.agent.handlers import Context, Handler, HandlerRun, Handlers, Tools
from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.handler_run import RouteRefusal
from docllm.agent.handlers.named_limits import LimitError
from docllm.agent.handlers.processes.suspects import RunSuspect
from docllm.agent.judge import tiers_of
from docllm.agent.ports import Call, CallFailed, Reply, RouteClient
from docllm.agent.ports.outcome import Dead, Failure, Outcome, Retry, Snooze, Succeeded
from docllm.agent.quota.limit import FREE, Permit
from docllm.schemas.runtime.executors import InlineExecutor
from docllm.schemas.settings.config import Price, TypeConfig
from tests.support.documents import file_documents

TASK = {"id": "a/1", "prompt": "Summarize: {document}", "input": {"text": "Sales rose."}}
OPENAI: dict[str, Any] = {
    "custom_id": "a",
    "method": "POST",
    "url": "/v1/chat/completions",
    "body": {"messages": [{"role": "user", "content": "hi"}]},
}


def completion(content: object = "Fine.", reason: str = "stop") -> Reply:
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    choices = [{"message": {"role": "assistant", "content": content}, "finish_reason": reason}]
    return Reply(200, {}, orjson.dumps({"model": "m", "choices": choices, "usage": usage}))


@dataclass
class StillClock:
    """A clock that moves only when a test sets it."""

    at_s: float = 100.0

    def now_s(self) -> float:
        return self.at_s

    def utc_s(self) -> float:
        return 1_800_000_000.0

    async def sleep(self, delay_s: float) -> None:
        raise AssertionError("nothing here waits")


@dataclass
class FakeLLM:
    replies: list[Reply | CallFailed]
    calls: list[Call] = field(default_factory=list)

    async def complete(self, call: Call) -> Reply | CallFailed:
        self.calls.append(call)
        return self.replies[min(len(self.calls), len(self.replies)) - 1]

    async def close(self) -> None:
        raise AssertionError("handlers close nothing")


class CountingExecutor(InlineExecutor):
    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, call: Any) -> Any:
        self.calls += 1
        return call()


@dataclass
class FakeUses:
    """One named limit, `crm`, with so many seats; `waits_s` are the waits that were asked for."""

    seats: int = 1
    waits_s: list[float] = field(default_factory=list)

    async def wait_for_use(self, name: str, wait_s: float) -> Permit | None:
        if name != "crm":
            raise LimitError(f"the settings have no limit named {name!a}")
        self.waits_s.append(wait_s)
        if not self.seats:
            return None
        self.seats -= 1
        return copy.copy(FREE)

    def end_use(self, _permit: Permit) -> None:
        self.seats += 1


class FreeLocks:
    """Locks that nobody else takes."""

    def __init__(self) -> None:
        self._token = 0

    def ask(self, name: str) -> None:
        """Do nothing."""

    async def wait(self, _name: str, _wait_s: float, *, once: bool = False) -> int | None:
        """Take it at once."""
        del once
        self._token += 1
        return self._token

    def give_back(self, name: str) -> None:
        """Do nothing."""


@dataclass
class HandlersHarness:
    """Handlers over a fake LLM."""

    llm: FakeLLM
    tools: Tools
    handlers: Handlers
    apart: CountingExecutor
    clock: StillClock
    uses: FakeUses
    leased: bool = True

    def run(self, task: dict[str, Any] | bytes = TASK, **attempt: Any) -> Outcome:
        value = task if isinstance(task, bytes) else orjson.dumps(task)
        return asyncio.run(self.handlers.run(self.attempt(value=value, **attempt)))

    def attempt(self, **attempt: Any) -> HandlerRun:
        given: dict[str, Any] = {
            "task_id": 7,
            "batch": "b",
            "value": orjson.dumps(TASK),
            "counted_before": 0,
            "max_attempts": 5,
            "snoozes": 0,
            "left_s": 60.0,
            "route": "default",
            "limit_s": None,
            "refused_alone": False,
            "locks": FreeLocks(),
        }
        return HandlerRun(may_call=lambda: self.leased, **given | attempt)


def of_author(function: Callable[[Context], Awaitable[Any]]) -> Handler:
    """Return the handler of an async function that an author wrote."""

    async def handler(context: AttemptContext) -> Any:
        return await function(Context(context))

    return handler


async def _never(_handler: Handler, context: AttemptContext) -> None:
    raise AssertionError(context.name)


def handlers_harness(
    *replies: Reply | CallFailed,
    types: dict[str, TypeConfig] | None = None,
    run_suspect: RunSuspect = _never,
    llm: FakeLLM | None = None,
    clock: StillClock | None = None,
    context_tokens: int | None = None,
    route_refusal: RouteRefusal = lambda _line, _allowed: "",
    **by_type: Callable[[Any], Awaitable[Any]],  # of the attempt, or of names that contexts share
) -> HandlersHarness:
    llm, apart = llm or FakeLLM(list(replies) or [completion()]), CountingExecutor()
    clock, uses = clock or StillClock(), FakeUses()
    client = RouteClient(llm, "default-model", 30.0, context_tokens=context_tokens)
    tools = Tools(
        route_client={"default": client}.__getitem__,
        documents=file_documents(),
        clock=clock,
        apart=apart,
        jitter=lambda: 0.5,
        prices={"m": Price(1.0, 1.0)},
        tiers=tiers_of(("30s", "5m", "1h")),
        types=types or {},
        max_attempts_of=lambda _type: 5,
        route_refusal=route_refusal,
        limits=uses,
    )
    handlers = Handlers(tools=tools, by_type=by_type, run_suspect=run_suspect)
    return HandlersHarness(llm, tools, handlers, apart, clock, uses)


def failure_of(outcome: Outcome) -> Failure:
    assert isinstance(outcome, Retry | Snooze | Dead)
    return outcome.failure


def succeeded(outcome: object) -> Succeeded:
    assert isinstance(outcome, Succeeded), outcome
    return outcome
