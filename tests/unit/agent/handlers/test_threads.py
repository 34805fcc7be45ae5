"""Plain functions run in threads: they call through their attempt and leave nothing else behind."""

import asyncio
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
import pytest

from docllm.agent.handlers import (
    AttemptEndedError,
    BlockingContext,
    GiveUpError,
)
from docllm.agent.handlers.functions import HandlerFunctions
from docllm.agent.ports.outcome import Dead, Released, Retry
from docllm.agent.process.containment import new_event_loop
from docllm.schemas.task.failures import ErrorClass
from tests.support.handlers import (
    TASK,
    HandlersHarness,
    completion,
    failure_of,
    handlers_harness,
    succeeded,
)

PATIENCE_S = 60.0


def harness(
    function: Callable[[BlockingContext], Any], *replies: Any, most_left: int = 4
) -> tuple[HandlersHarness, list[str]]:
    """Return handlers whose documents a plain function runs, and why their agent had to end."""
    failed: list[str] = []
    functions = HandlerFunctions(most_left=most_left, failed=failed.append)
    return handlers_harness(*replies, document=partial(functions.run_blocking, function)), failed


def asked(context: BlockingContext) -> dict[str, str]:
    answer = context.complete({"model": "m", "messages": []})
    return {"answer": answer.text, "document": context.document() or ""}


def test_a_plain_function_calls_through_its_attempt() -> None:
    """The function's calls are judged and cost what those of an async handler cost."""
    handlers, _ = harness(asked, completion("Yes."))

    outcome = succeeded(handlers.run())

    assert orjson.loads(outcome.body) == {"answer": "Yes.", "document": "Sales rose."}
    assert (outcome.spent.tokens_in, outcome.spent.cost_micro) == (10, 12)
    assert [call.request_id for call in handlers.llm.calls] == ["b/a%2F1#1"]


def give_up(_context: BlockingContext) -> None:
    raise GiveUpError("no invoice")


def leave(_context: BlockingContext) -> None:
    raise SystemExit(0)


def stop(_context: BlockingContext) -> None:
    raise StopIteration


def interrupt(_context: BlockingContext) -> None:
    raise KeyboardInterrupt


def later(_context: BlockingContext) -> Any:
    async def value() -> int:
        return 1

    return value()


@pytest.mark.parametrize(
    ("function", "error_class", "text"),
    [
        (give_up, ErrorClass.HANDLER_GAVE_UP, "no invoice"),
        (leave, ErrorClass.HANDLER, "SystemExit: 0"),
        (stop, ErrorClass.HANDLER, "RuntimeError: coroutine raised StopIteration"),
        (interrupt, ErrorClass.HANDLER, "KeyboardInterrupt:"),
        (later, ErrorClass.HANDLER, "TypeError: the handler returned something to await"),
    ],
)
def test_what_a_plain_function_raises_is_its_own_failure(
    function: Any, error_class: ErrorClass, text: str
) -> None:
    """Even `sys.exit` and what would end a coroutine or the program are failures of the attempt."""
    handlers, _ = harness(function)

    failure = failure_of(handlers.run())

    assert failure.error_class is error_class
    assert failure.text.startswith(text)


def test_a_traceback_begins_in_the_function() -> None:
    """The frames of the threads say nothing about the handler."""
    handlers, _ = harness(leave)

    lines = failure_of(handlers.run()).traceback.splitlines()

    assert lines[0].endswith(", in leave")


def test_a_refused_call_ends_a_plain_function() -> None:
    """The judge's outcome is settled, as with an async handler."""
    handlers, _ = harness(asked, completion(reason="length"))

    outcome = handlers.run()

    assert failure_of(outcome).error_class is not ErrorClass.HANDLER


def test_a_function_that_outlives_its_attempt_makes_no_more_calls() -> None:
    """The function's thread is not waited for; a call that it tries afterwards ends it."""
    go_on, ended = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def blocks(context: BlockingContext) -> None:
        go_on.wait(PATIENCE_S)
        try:
            context.complete({"model": "m"})
        except AttemptEndedError as error:
            errors.append(error)
        ended.set()

    handlers, failed = harness(blocks)

    async def run() -> Any:
        outcome = await handlers.handlers.run(handlers.attempt(left_s=-5.0))
        go_on.set()
        await asyncio.to_thread(ended.wait, PATIENCE_S)
        return outcome

    outcome = asyncio.run(run())

    assert failure_of(outcome).text == "the handler did not return within its claim"
    assert (len(errors), handlers.llm.calls, failed) == (1, [], [])


def test_functions_that_never_end_hold_a_bounded_number_of_threads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each is named in the log. Once they are too many, nothing begins and the agent must end."""
    free = threading.Event()
    handlers, failed = harness(lambda _context: free.wait(PATIENCE_S), most_left=2)
    before = threading.active_count()

    async def run() -> list[Any]:
        attempts = [handlers.attempt(left_s=-5.0) for _ in range(3)]
        outcomes = [await handlers.handlers.run(attempt) for attempt in attempts]
        assert threading.active_count() == before + 2
        free.set()
        return outcomes

    outcomes = asyncio.run(run())

    assert [type(outcome) for outcome in outcomes] == [Retry, Retry, Released]
    assert failed[0].startswith("2 functions of handlers go on though their attempts have ended")
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert lines[0] == "task 7 (b/a/1): its attempt has ended, but its function goes on"


def test_a_thread_serves_one_attempt_after_another() -> None:
    """Attempts that follow each other need one thread; those that run together have their own."""
    both = threading.Barrier(2)

    def name(context: BlockingContext) -> int:
        if context.task.prompt == "together {document}":
            both.wait(PATIENCE_S)
        return threading.get_ident()

    handlers, _ = harness(name)

    async def run() -> list[list[Any]]:
        one = [await handlers.handlers.run(handlers.attempt()) for _ in range(2)]
        task = orjson.dumps({**TASK, "prompt": "together {document}"})
        attempts = [handlers.attempt(value=task) for _ in range(2)]
        return [one, await asyncio.gather(*map(handlers.handlers.run, attempts))]

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        one, together = runner.run(run())

    assert len({outcome.body for outcome in one}) == 1
    assert len({outcome.body for outcome in together}) == 2


def test_a_function_that_ends_as_its_attempt_is_cancelled_is_not_left_over() -> None:
    """Its thread is free, so it takes the place of none that nothing can end."""
    failed: list[str] = []

    async def main() -> Any:
        running: list[asyncio.Task[Any]] = []

        class Cancelling(HandlerFunctions):
            def _note(self, *end: Any) -> None:
                super()._note(*end)
                running[0].cancel()

        run = Cancelling(most_left=1, failed=failed.append).run_blocking
        handlers = handlers_harness(document=partial(run, lambda _context: "done"))
        for _ in range(2):
            running[:] = [asyncio.create_task(handlers.handlers.run(handlers.attempt()))]
            await asyncio.wait(running)

    asyncio.run(main())

    assert failed == []


def test_a_cancelled_attempt_pays_for_the_call_that_was_under_way() -> None:
    """The running call ends with its attempt, and costs its estimate."""
    begun = threading.Event()

    class Hanging:
        async def complete(self, call: Any) -> Any:
            begun.set()
            await asyncio.get_running_loop().create_future()

    handlers, _ = harness(asked)
    handlers.llm.complete = Hanging().complete  # type: ignore[method-assign]

    async def run() -> Any:
        attempt = asyncio.create_task(handlers.handlers.run(handlers.attempt(left_s=-4.0)))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        return await attempt

    outcome = asyncio.run(run())

    assert isinstance(outcome, Retry | Dead)
    assert outcome.spent.unsure_micro > 0
