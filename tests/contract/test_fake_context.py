"""Handlers give the same in `FakeContext` as in an agent's attempt."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from docllm import BlockingContext, ComeBackError, Context, GiveUpError, TryAgainError
from docllm.agent.handlers import DocumentError, WaitedTooLongError
from docllm.agent.handlers.calls.results import CallRefusedError
from docllm.agent.ports.outcome import Dead, Moved, Retry, Succeeded
from docllm.schemas.settings.config import TypeConfig
from docllm.testing import FakeContext
from tests.support.handlers import completion, handlers_harness, of_author

LINE = {"id": "a", "prompt": "Which party? {document}", "input": {"text": "ACME pays 5."}}


def asked(content: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}]}


async def party(context: Context) -> dict[str, str]:
    """Make two calls, and order a task with the second one's answer."""
    text = await context.document()
    first = await context.complete(asked(f"{context.prompt} {text}"))
    second = await context.complete(asked(first.text))
    await context.follow({"id": f"{context.task.key}/check", "prompt": second.text})
    return {"party": first.text}


def party_of_thread(context: BlockingContext) -> dict[str, str]:
    """Do the same in a plain function."""
    first = context.complete(asked(f"{context.prompt} {context.document()}"))
    second = context.complete(asked(first.text))
    context.follow({"id": f"{context.task.key}/check", "prompt": second.text})
    return {"party": first.text}


@pytest.mark.parametrize("handler", [party, party_of_thread])
def test_a_handler_makes_the_same_calls_and_tasks(handler: Callable[..., Any]) -> None:
    """The result, the bodies and the follow-ups are those of an agent."""
    fake = FakeContext(LINE, answers=["ACME", "Check it."])
    harness = handlers_harness(
        completion("ACME"), completion("Check it."), document=of_author(party)
    )

    result = asyncio.run(fake.run(handler))
    outcome = harness.run(LINE)

    assert isinstance(outcome, Succeeded)
    assert isinstance(fake.outcome, Succeeded)
    assert result == {"party": "ACME"}
    assert (fake.outcome.body, fake.outcome.codec) == (outcome.body, outcome.codec)
    assert fake.calls == [orjson.loads(call.body) for call in harness.llm.calls]
    assert fake.follow_ups == [orjson.loads(order.value) for order in outcome.follow_ups]
    assert fake.follow_ups == [{"id": "a/check", "prompt": "Check it."}]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (GiveUpError("no invoice"), Dead),
        (TryAgainError("later"), Retry),
        (ComeBackError(after_s=5, state={"job": 7}), Moved),
        (ValueError("a bug"), Retry),
    ],
)
def test_what_a_handler_raises_is_raised(error: Exception, outcome: type) -> None:
    """`outcome` says what an agent makes of it; nothing that was ordered counts."""

    async def handler(context: Context) -> None:
        await context.follow({"id": "b", "prompt": "x"})
        raise error

    fake = FakeContext(LINE)
    with pytest.raises(type(error)) as raised:
        asyncio.run(fake.run(handler))

    assert raised.value is error
    assert isinstance(fake.outcome, outcome)
    assert fake.follow_ups == []


def test_a_follow_up_may_have_any_type() -> None:
    """A test has no settings, so it cannot tell which types the agents know."""

    async def split(context: Context) -> None:
        await context.follow({"id": "a/1", "type": "page"})
        await context.follow({"id": "a/sum", "type": "sum"}, after="children")

    fake = FakeContext(LINE)
    asyncio.run(fake.run(split))

    assert [line["type"] for line in fake.follow_ups] == ["page", "sum"]
    assert fake.joins == {"a/sum": "wait"}


def test_state_attempt_losses_and_settings_are_those_given() -> None:
    """A second run of a task that came back is tested by its state."""

    async def handler(context: Context) -> list[Any]:
        given = [context.state, context.attempt, context.losses]
        return [*given, context.prompt, context.task.metadata]

    fake = FakeContext(
        {"id": "a", "type": "scan", "metadata": {"year": 2026}},
        state={"job": 7},
        attempt=3,
        losses=1,
        settings=TypeConfig(prompt="Read it."),
    )

    result = asyncio.run(fake.run(handler))

    assert result == [{"job": 7}, 3, 1, "Read it.", {"year": 2026}]


def test_locks_and_limits_are_free_unless_they_are_taken() -> None:
    """A token rises each time."""

    async def handler(context: Context) -> list[int]:
        async with context.lock("a") as first, context.limit("crm", wait_s=0):
            pass
        async with context.lock("a") as second:
            return [first.fence, second.fence]

    async def waits(context: Context) -> None:
        async with context.lock("taken", wait_s=1):
            raise AssertionError("the lock is taken")

    async def uses(context: Context) -> None:
        async with context.limit("full", wait_s=1):
            raise AssertionError("the limit is used up")

    fake = FakeContext(LINE, taken=["taken", "full"])

    assert asyncio.run(fake.run(handler)) == [1, 2]
    for refused in (waits, uses):
        with pytest.raises(WaitedTooLongError):
            asyncio.run(fake.run(refused))


def test_a_refused_call_ends_the_handler_as_in_an_agent() -> None:
    """A number is the status of a refusal."""

    async def handler(context: Context) -> str:
        return (await context.complete(asked("x"))).text

    fake = FakeContext(LINE, answers=[400])

    with pytest.raises(CallRefusedError, match="status 400 of a test"):
        asyncio.run(fake.run(handler))
    assert isinstance(fake.outcome, Dead)


def test_answers_are_texts_json_or_whole_completions() -> None:
    """JSON is checked against the schema of the call."""
    schema = {"type": "object", "properties": {"total": {"type": "number"}}}
    whole = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}

    async def handler(context: Context) -> list[str]:
        one = await context.complete(asked("x"), schema=schema)
        two = await context.complete(asked("x"))
        return [one.text, two.text]

    assert asyncio.run(FakeContext(LINE, answers=[{"total": 5}, whole]).run(handler)) == [
        '{"total":5}',
        "whole",
    ]


async def sum_up(context: Context) -> dict[str, Any]:
    await context.follow(LINE | {"id": "a/all"}, after="children", on_dead_child="die")
    return {child.id: (child.status, child.result) async for child in context.children()}


def sum_up_in_thread(context: BlockingContext) -> dict[str, Any]:
    context.follow(LINE | {"id": "a/all"}, after="children", on_dead_child="die")
    return {child.id: (child.status, child.result) for child in context.children()}


@pytest.mark.parametrize("handler", [sum_up, sum_up_in_thread])
def test_a_join_reads_its_children(handler: Callable[..., Any]) -> None:
    """All of them, page by page; any other task has none."""
    children = [{"id": f"a/{number}", "result": {"n": number}} for number in range(250)]
    fake = FakeContext(LINE, children=[*children, {"id": "a/dead", "status": "dead"}])

    result = asyncio.run(fake.run(handler))

    assert len(result) == 251
    assert result["a/249"] == ("succeeded", {"n": 249})
    assert result["a/dead"] == ("dead", None)
    assert fake.joins == {"a/all": "die"}
    with pytest.raises(ValueError, match="FakeContext runs no join"):
        asyncio.run(FakeContext(LINE).run(handler))


def test_documents_by_uri_are_those_given() -> None:
    """Any other one cannot be read."""
    line = {"id": "a", "prompt": "x {document}", "input": {"uri": "file:///a.txt"}}

    async def handler(context: Context) -> str | None:
        return await context.document()

    assert (
        asyncio.run(FakeContext(line, documents={"file:///a.txt": "Text."}).run(handler)) == "Text."
    )
    with pytest.raises(DocumentError, match="has no document file:"):
        asyncio.run(FakeContext(line).run(handler))


def test_a_call_without_an_answer_and_a_bad_result_fail_the_test() -> None:
    """The message says what to do."""

    async def calls(context: Context) -> None:
        await context.complete(asked("x"))

    async def returns(_context: Context) -> object:
        return object()

    with pytest.raises(AssertionError, match="has made 1 calls, and answers has 0"):
        asyncio.run(FakeContext(LINE).run(calls))
    with pytest.raises(AssertionError, match="could not store"):
        asyncio.run(FakeContext(LINE).run(returns))


def test_the_tests_of_the_page_pass() -> None:
    """Each block of Python of the page runs, and so do the tests in it."""
    page = (Path(__file__).parents[2] / "docs/how-to/test-handlers.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "test-handlers.md", "exec"), names)  # noqa: S102 - a page of our own
    tests = [function for name, function in names.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()
