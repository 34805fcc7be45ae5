"""A run that is ended from outside runs again, or is dead under `on_loss = "dead"`."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from docllm.agent.handlers import BlockingContext, Context
from docllm.agent.handlers.attempt_context import AttemptContext
from docllm.agent.handlers.functions import HandlerFunctions
from docllm.agent.ports import Call, CallFailed, Reply
from docllm.agent.ports.outcome import Dead, Outcome, Released, Spent, Succeeded
from docllm.agent.process.containment import cancel
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.failures import Disposition, ErrorClass
from tests.support.handlers import FakeLLM, HandlersHarness, handlers_harness

BODY = {"model": "m", "messages": []}
ONCE = {"document": TypeConfig(on_loss="dead")}
FUNCTIONS = HandlerFunctions(most_left=1, failed=lambda _reason: None)


def end_attempt() -> None:
    """End the current attempt as a drain does."""
    task = asyncio.current_task()
    assert task is not None
    cancel(task)


def ended(
    function: Callable[[Any], Awaitable[Any]], types: dict[str, TypeConfig], **attempt: Any
) -> Outcome:
    """Return how a coroutine's attempt ends that is cancelled."""
    begun = asyncio.Event()

    async def begin(context: Context) -> Any:
        begun.set()
        return await function(context)

    run = partial(FUNCTIONS.run_async, begin)
    harness = handlers_harness(document=run, types=types)

    async def play() -> Outcome:
        work = asyncio.ensure_future(harness.handlers.run(harness.attempt(**attempt)))
        await begun.wait()
        cancel(work)
        return await work

    return asyncio.run(play())


def of_reason(outcome: Outcome) -> str:
    """Return why a task is dead that may have finished."""
    assert isinstance(outcome, Dead)
    assert outcome.disposition is Disposition.WORKER_LOST
    assert outcome.failure.error_class is ErrorClass.WORKER_LOST
    assert outcome.failure.text.startswith("it may have finished")
    return outcome.failure.text.split('"')[-2]


async def hang(_context: Any) -> None:
    await asyncio.get_running_loop().create_future()


def test_a_cancelled_coroutine_is_dead_once_it_began() -> None:
    """Otherwise the next agent begins it anew, and tells it of this run."""
    assert ended(hang, {}) == Released(cut_off=True)
    assert of_reason(ended(hang, ONCE)) == "its agent stopped, or its claim was over"


def test_a_coroutine_that_ends_as_it_is_cancelled_has_its_own_end() -> None:
    """Its result is stored: it ran once, and its end was seen."""

    async def tidy(context: Any) -> str:
        with suppress(asyncio.CancelledError):
            await hang(context)
        return "done"

    outcome = ended(tidy, ONCE)

    assert isinstance(outcome, Succeeded)


def test_a_thread_that_goes_on_is_not_begun_beside_itself() -> None:
    """Nothing ends a thread, so its attempt may still change something."""
    begun, go_on = threading.Event(), threading.Event()

    def work(_context: BlockingContext) -> None:
        begun.set()
        go_on.wait()

    async def play(harness: HandlersHarness) -> Outcome:
        running = asyncio.ensure_future(harness.handlers.run(harness.attempt()))
        await asyncio.to_thread(begun.wait)
        cancel(running)
        try:
            return await running
        finally:
            go_on.set()

    functions = HandlerFunctions(most_left=5, failed=lambda _reason: None)
    harness = handlers_harness(document=partial(functions.run_blocking, work), types=ONCE)

    of_reason(asyncio.run(play(harness)))


def test_a_handler_that_did_not_begin_is_given_back() -> None:
    """There was no room for it in the agent."""
    full = HandlerFunctions(most_left=0, failed=lambda _reason: None)
    run = partial(full.run_async, hang)

    assert handlers_harness(document=run, types=ONCE).run() == Released()


@pytest.mark.parametrize(("types", "again"), [({}, True), (ONCE, False)])
def test_a_lost_lease_ends_a_run_that_began(types: dict[str, TypeConfig], *, again: bool) -> None:
    """The handler may have changed something before the call that it may not make any more."""

    async def call(context: Context) -> None:
        await context.complete(BODY)

    run = partial(FUNCTIONS.run_async, call)
    harness = handlers_harness(document=run, types=types)
    harness.leased = False

    outcome = harness.run()

    assert harness.llm.calls == []
    if again:
        assert outcome == Released(cut_off=True)
    else:
        assert of_reason(outcome) == "its agent lost its lease"


class EndingLLM(FakeLLM):
    """Ends the attempt in its first call."""

    async def complete(self, call: Call) -> Reply | CallFailed:
        self.calls.append(call)
        end_attempt()
        await asyncio.sleep(0)
        raise AssertionError("the attempt is cancelled")


class EndingPermits:
    """Ends the attempt while it waits for the permit of its first call."""

    async def acquire(self, *_: object) -> None:
        end_attempt()
        await asyncio.sleep(0)


def test_a_chat_is_dead_once_its_call_was_sent() -> None:
    """A release before the call is no loss: nothing has happened."""
    waiting = handlers_harness(types=ONCE)
    assert waiting.run(call_permits=EndingPermits()) == Released()
    sent = handlers_harness(types=ONCE, llm=EndingLLM([]))
    noted: list[Spent] = []

    outcome = sent.run(note_spent=noted.append)

    assert (len(waiting.llm.calls), len(sent.llm.calls)) == (0, 1)
    of_reason(outcome)


def test_a_chat_that_must_not_run_twice_takes_the_long_way() -> None:
    """The short way of plain chats knows nothing of it, so that it costs them nothing."""
    once, again = handlers_harness(types=ONCE), handlers_harness()

    assert once.handlers.plain_plan("document", "default") is None
    assert again.handlers.plain_plan("document", "default") is not None
    assert (once.handlers.runs_again("document"), again.handlers.runs_again("document")) == (
        False,
        True,
    )


def test_the_outcome_carries_what_was_paid() -> None:
    """Its dead letter has the cost of the calls that were answered."""

    async def call(context: AttemptContext) -> None:
        context.has_begun = True
        await context.complete(BODY, schema=None, verbatim=False)
        end_attempt()
        await asyncio.sleep(0)

    outcome = handlers_harness(document=call, types=ONCE).run()

    assert isinstance(outcome, Dead)
    assert outcome.spent.cost_micro == 12
