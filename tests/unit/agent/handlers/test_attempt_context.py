"""The context that a handler gets: the names that its author may use, wherever it runs."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from docllm.agent.handlers import BlockingContext, Context
from docllm.agent.ports import Call, CallFailed, Reply
from docllm.agent.ports.outcome import Spent
from tests.support.handlers import FakeLLM, completion, handlers_harness, of_author, succeeded

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "handlers.md"


def names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def documented() -> Iterator[str]:
    _, _, rest = PAGE.read_text("utf-8").partition("Both have:\n\n")
    for row in re.findall(r"^\| (`.+?) \| ", rest.partition("\n\n")[0], re.MULTILINE):
        yield from re.findall(r"`(\w+)", row)


@pytest.mark.parametrize("kind", [Context, BlockingContext])
def test_a_handler_sees_the_documented_names_and_no_others(kind: type) -> None:
    """A handler reads the same in the event loop, in a thread and in a process."""
    assert names(kind) == set(documented())


@pytest.mark.parametrize("counted", [0, 3])
def test_an_attempt_has_a_number(counted: int) -> None:
    """The first attempt is number 1, in the context as in the log and in the call's id."""

    async def number(context: Context) -> Any:
        await context.complete({"model": "m", "messages": []})
        return [context.attempt, context.log.facts["attempt"]]

    handlers = handlers_harness(document=number)
    outcome = succeeded(handlers.run(counted_before=counted))

    assert orjson.loads(outcome.body) == [counted + 1, counted + 1]
    assert [call.request_id for call in handlers.llm.calls] == [f"b/a%2F1#{counted + 1}"]


class LateLLM(FakeLLM):
    """Answers once the handler that called may have returned."""

    async def complete(self, call: Call) -> Reply | CallFailed:
        for _ in range(10):
            await asyncio.sleep(0)
        return await super().complete(call)


def test_a_call_that_ends_after_its_attempt_costs_nobody_anything() -> None:
    """A handler may leave a call behind; the delivery then carries the next attempt's cost."""
    noted: list[Spent] = []
    harness = handlers_harness(llm=LateLLM([completion()]))

    async def left_behind() -> None:
        left: list[asyncio.Task[Any]] = []

        async def leaves(context: Context) -> None:
            left.append(asyncio.create_task(context.complete({"model": "m", "messages": []})))
            await asyncio.sleep(0)

        harness.handlers.apply(tools=harness.tools, by_type={"document": of_author(leaves)})
        await harness.handlers.run(harness.attempt(note_spent=noted.append))
        await asyncio.wait(left)

    asyncio.run(left_behind())

    assert (len(harness.llm.calls), noted) == (1, [])
