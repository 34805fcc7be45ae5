"""Coroutines of handlers end with their attempts, or are left over and counted."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from docllm.agent.handlers import AttemptEndedError, Context
from docllm.agent.handlers.functions import HandlerFunctions
from docllm.agent.ports.outcome import Outcome, Released, Retry, Succeeded
from docllm.agent.process.containment import new_event_loop
from tests.support.handlers import (
    HandlersHarness,
    completion,
    failure_of,
    handlers_harness,
    succeeded,
)

NO_TIME_S = -5.0  # less than the grace of a handler, so its time is over at once


def harness(
    function: Callable[[Context], Coroutine[Any, Any, Any]], *replies: Any, most_left: int = 4
) -> tuple[HandlersHarness, list[str]]:
    """Return handlers whose documents a coroutine runs, and why their agent had to end."""
    failed: list[str] = []
    functions = HandlerFunctions(most_left=most_left, failed=failed.append, clean_up_s=0.0)
    return handlers_harness(*replies, document=partial(functions.run_async, function)), failed


def run(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def test_a_coroutine_calls_through_its_attempt() -> None:
    async def ask(context: Context) -> str:
        return (await context.complete({"messages": []})).text

    handlers, _ = harness(ask, completion("Yes."))

    outcome = succeeded(handlers.run())

    assert (outcome.body, outcome.spent.tokens_in) == (b'"Yes."', 10)


def test_coroutines_that_ignore_their_cancellation_are_left_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each is named in the log, and its attempt fails: no other task waits for it.

    Once they are too many, nothing begins and the agent must end. One that returns makes room.
    """
    free = asyncio.Event()

    async def stubborn(context: Context) -> None:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue
        raise ValueError("nobody hears it")

    handlers, failed = harness(stubborn, most_left=2)

    async def main() -> list[Outcome]:
        attempts = [handlers.attempt(left_s=NO_TIME_S) for _ in range(3)]
        outcomes = [await handlers.handlers.run(attempt) for attempt in attempts]
        free.set()
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)
        return [*outcomes, await handlers.handlers.run(handlers.attempt())]

    outcomes = run(main())

    assert [type(outcome) for outcome in outcomes] == [Retry, Retry, Released, Retry]
    assert failure_of(outcomes[0]).text == "the handler did not return within its claim"
    assert failure_of(outcomes[3]).text == "ValueError: nobody hears it"
    assert failed[0].startswith("2 functions of handlers go on though their attempts have ended")
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert lines[0] == "task 7 (b/a/1): its attempt has ended, but its function goes on"
    assert not any("never retrieved" in line for line in lines)


@pytest.mark.parametrize("wanted", ["complete", "follow"])
def test_what_a_coroutine_leaves_behind_is_told_that_its_attempt_has_ended(wanted: str) -> None:
    """Otherwise it would believe that it has ordered a task, which nobody makes."""
    arguments = {"complete": {"messages": []}, "follow": {"id": "a/2", "prompt": "Translate."}}
    left: list[asyncio.Task[Any]] = []

    async def leave(context: Context) -> str:
        async def later() -> None:
            await has_ended.wait()
            await getattr(context, wanted)(arguments[wanted])

        left.append(asyncio.create_task(later()))
        return "done"

    handlers, _ = harness(leave, completion("Yes."))
    has_ended = asyncio.Event()

    async def main() -> Outcome:
        outcome = await handlers.handlers.run(handlers.attempt())
        has_ended.set()
        with pytest.raises(AttemptEndedError, match="the attempt has ended"):
            await left[0]
        return outcome

    assert isinstance(run(main()), Succeeded)
    assert handlers.llm.calls == []


def test_a_coroutine_may_clean_up() -> None:
    """What it returns after its cancellation is its end, as if it had returned in time."""

    async def tidy(context: Context) -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.get_running_loop().create_future()
        return "cleaned up"

    handlers, failed = harness(tidy)

    outcome = succeeded(handlers.run(left_s=NO_TIME_S))

    assert (outcome.body, failed) == (b'"cleaned up"', [])


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), GeneratorExit()])
def test_whatever_a_coroutine_raises_is_its_attempts_failure(error: BaseException) -> None:
    """It ends neither the loop nor the attempt uncounted, and the line of its code is known."""

    async def end(context: Context) -> None:
        raise error

    handlers, _ = harness(end)

    outcome = run(handlers.handlers.run(handlers.attempt()))

    assert isinstance(outcome, Retry)
    assert failure_of(outcome).text.startswith(f"{type(error).__name__}:")
    assert failure_of(outcome).traceback.startswith(f'  File "{__file__}"')
