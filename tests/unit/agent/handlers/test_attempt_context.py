"""The context that a handler gets: the names that its author may use, wherever it runs."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from agent.handlers import BlockingContext, Context
from agent.handlers.attempt_context import AttemptContext
from agent.handlers.processes.program import RemoteContext
from agent.ports.outcome import Succeeded
from tests.support.handlers import handlers_harness

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "handlers.md"


def names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def documented() -> Iterator[str]:
    _, _, rest = PAGE.read_text("utf-8").partition("Both have:\n\n")
    for row in re.findall(r"^\| (`.+?) \| ", rest.partition("\n\n")[0], re.MULTILINE):
        yield from re.findall(r"`(\w+)", row)


@pytest.mark.parametrize("kind", [Context, BlockingContext, RemoteContext])
def test_a_handler_sees_the_documented_names_and_no_others(kind: type) -> None:
    """A handler reads the same in the event loop, in a thread and in a process."""
    assert names(kind) == set(documented())


def test_the_agents_context_is_one_for_authors() -> None:
    """A function that takes a Context gets one in the agent, and in a process."""
    assert issubclass(AttemptContext, Context)
    assert issubclass(RemoteContext, Context)


@pytest.mark.parametrize("counted", [0, 3])
def test_an_attempt_has_a_number(counted: int) -> None:
    """The first attempt is number 1, in the context as in the log and in the call's id."""

    async def number(context: Context) -> Any:
        await context.complete({"model": "m", "messages": []})
        return [context.attempt, context.log.facts["attempt"]]

    handlers = handlers_harness(document=number)
    outcome = handlers.run(counted_before=counted)

    assert isinstance(outcome, Succeeded)
    assert orjson.loads(outcome.body) == [counted + 1, counted + 1]
    assert [call.request_id for call in handlers.llm.calls] == [f"b/a%2F1#{counted + 1}"]
