"""What the settings of a task's type change in its attempts."""

import asyncio
import zlib
from dataclasses import replace

import orjson
import pytest

from docllm.agent.handlers import Context, SoftLimitError
from docllm.agent.handlers.handler_run import Inherited
from docllm.agent.ports.outcome import Dead, Retry, Succeeded
from docllm.schemas.settings.config import TypeConfig
from docllm.schemas.task.result.codec import (
    COMPLETION,
    JSON_COMPLETION,
    JSON_COMPLETION_ZLIB,
    VALUE,
)
from tests.support.handlers import TASK, completion, failure_of, handlers_harness, succeeded

INVOICE = {"id": "a", "type": "invoice", "input": {"text": "Total: 7"}}
SCHEMA = {"type": "object", "required": ["total"]}
OF_TYPE = {"invoice": TypeConfig(prompt="Read: {document}", schema=SCHEMA)}


# ---- prompt and schema


def test_a_task_takes_prompt_and_schema_of_its_type() -> None:
    """The schema goes to the server, and the ledger learns that the answer is JSON."""
    tried = handlers_harness(completion('{"total": 7}'), types=OF_TYPE)

    outcome = succeeded(tried.run(INVOICE))

    assert outcome.codec == JSON_COMPLETION
    sent = orjson.loads(tried.llm.calls[0].body)
    assert sent["messages"][0]["content"] == "Read: Total: 7"
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA


def test_an_answer_that_does_not_fit_the_types_schema_is_refused() -> None:
    """The schema of the type is checked like that of a line."""
    tried = handlers_harness(completion('{"sum": 7}'), types=OF_TYPE)

    assert failure_of(tried.run(INVOICE)).error_class == "BAD_OUTPUT"


FENCED = '```json\n{"total": 7}\n```'


def test_a_fenced_answer_is_taken_and_counted() -> None:
    """It costs one call, and the metrics tell that the server answers so."""
    tried = handlers_harness(completion(FENCED), types=OF_TYPE)

    assert isinstance(tried.run(INVOICE), Succeeded)
    assert len(tried.llm.calls) == 1
    assert tried.tools.odd_answers.counts() == {"a fence or thoughts around it": 1}


def test_a_strict_type_takes_no_fenced_answer() -> None:
    """The model is asked once more, as for any answer that is not JSON."""
    types = {"invoice": replace(OF_TYPE["invoice"], strict_answer=True)}
    tried = handlers_harness(completion(FENCED), completion(FENCED), types=types)

    assert failure_of(tried.run(INVOICE)).error_class == "BAD_OUTPUT"
    assert len(tried.llm.calls) == 2
    assert tried.tools.odd_answers.counts() == {}


def test_a_handler_reads_an_answer_as_an_export_does() -> None:
    """Under a schema it is JSON alone; without one it has no thoughts before it."""
    texts = []

    async def read(context: Context) -> None:
        texts.append((await context.complete({"messages": []}, schema=SCHEMA)).text)
        texts.append((await context.complete({"messages": []})).text)

    replies = completion(FENCED), completion("<think>Well.</think> Seven.")
    handlers_harness(*replies, invoice=read).run(INVOICE)

    assert texts == ['{"total": 7}', "Seven."]


def test_a_long_answer_under_a_types_schema_is_packed() -> None:
    """Packing and the mark for JSON go together."""
    answer = completion(orjson.dumps({"total": "7" * 9000}).decode())

    outcome = succeeded(handlers_harness(answer, types=OF_TYPE).run(INVOICE))

    assert outcome.codec == JSON_COMPLETION_ZLIB
    assert zlib.decompress(outcome.body) == answer.body


def test_a_tasks_own_prompt_and_schema_win() -> None:
    """The line says itself that its answer is JSON, so the stored form is the old one."""
    own = {"type": "object", "required": ["sum"]}
    tried = handlers_harness(completion('{"sum": 7}'), types=OF_TYPE)

    outcome = succeeded(tried.run(INVOICE | {"prompt": "Add: {document}", "schema": own}))

    assert outcome.codec == COMPLETION
    assert orjson.loads(tried.llm.calls[0].body)["messages"][0]["content"] == "Add: Total: 7"


@pytest.mark.parametrize(
    ("prompt", "task", "words"),
    [
        ("Read: {document}", {"id": "a", "type": "invoice"}, "but the task has no input"),
        ("Read it", INVOICE, "its prompt has no {document}"),
    ],
)
def test_a_prompt_that_does_not_fit_the_task_makes_no_call(
    prompt: str, task: dict[str, object], words: str
) -> None:
    """Such a request would be paid for, and its answer would be about nothing."""
    tried = handlers_harness(types={"invoice": TypeConfig(prompt=prompt)})

    outcome = tried.run(task)

    assert isinstance(outcome, Dead)
    assert words in outcome.failure.text
    assert tried.llm.calls == []


def test_a_handler_sees_prompt_and_schema_of_the_type() -> None:
    """An answer that a handler got under them is JSON too; a value of its own is stored as ever."""

    async def read(context: Context) -> object:
        assert (context.prompt, context.schema) == ("Read: {document}", SCHEMA)
        answer = await context.complete({"messages": []}, schema=context.schema)
        return answer if context.task.key == "a" else answer.text

    tried = handlers_harness(completion('{"total": 7}'), types=OF_TYPE, invoice=read)
    outcomes = [tried.run(INVOICE | {"id": key}) for key in "ab"]

    assert [outcome.codec for outcome in outcomes if isinstance(outcome, Succeeded)] == [
        JSON_COMPLETION,
        VALUE,
    ]


# ---- limits and tiers


def test_the_soft_limit_is_told_at_the_next_call_and_only_once() -> None:
    """A handler that catches it may still make its last call."""

    async def long(context: Context) -> object:
        tried.clock.at_s += 4
        assert not context.overdue
        await context.document()
        tried.clock.at_s += 2
        try:
            await context.document()
        except SoftLimitError as error:
            assert context.overdue
            return [str(error), (await context.complete({"messages": []})).text]
        raise AssertionError("nobody told the handler to end")

    tried = handlers_harness(types={"document": TypeConfig(soft_limit_s=5)}, document=long)
    outcome = succeeded(tried.run(TASK))

    assert orjson.loads(outcome.body) == ["5 s have passed", "Fine."]


def test_a_soft_limit_that_is_not_caught_is_a_counted_failure() -> None:
    """The attempt made no result, so it counts like any other error of the handler."""

    async def long(context: Context) -> object:
        tried.clock.at_s += 6
        return (await context.complete({"messages": []})).text

    tried = handlers_harness(types={"document": TypeConfig(soft_limit_s=5)}, document=long)
    outcome = tried.run(TASK)

    assert isinstance(outcome, Retry)
    assert failure_of(outcome).text == "SoftLimitError: 5 s have passed"


def test_an_attempt_is_ended_at_its_time_limit() -> None:
    """A handler that hangs is ended; the failure names the setting that ended it."""

    async def hang(context: Context) -> None:
        await asyncio.Event().wait()

    tried = handlers_harness(types={"document": TypeConfig(time_limit_s=0.1)}, document=hang)
    outcome = tried.run(TASK)

    assert isinstance(outcome, Retry)
    assert failure_of(outcome).error_class == "HANDLER"
    assert (
        failure_of(outcome).text
        == "the handler did not return within the 0.1 s of its type's time_limit_s"
    )


@pytest.mark.parametrize(
    ("of_line_s", "whose"), [(0.1, "0.1 s of its line's"), (5, "0.2 s of its type's")]
)
def test_a_line_may_shorten_the_time_limit(of_line_s: float, whose: str) -> None:
    """The shorter of the two limits ends the attempt."""

    async def hang(context: Context) -> None:
        await asyncio.Event().wait()

    tried = handlers_harness(types={"document": TypeConfig(time_limit_s=0.2)}, document=hang)
    outcome = tried.run(TASK | {"time_limit_s": of_line_s})

    assert isinstance(outcome, Retry)
    assert failure_of(outcome).text == f"the handler did not return within the {whose} time_limit_s"


def test_a_type_waits_in_its_own_tiers() -> None:
    """The tiers of a type are some of the group's; the last of them serves all later attempts."""

    async def fail(context: Context) -> None:
        raise ValueError

    types = {"document": TypeConfig(tiers=("5m", "1h"))}
    tried = handlers_harness(types=types, document=fail)

    outcomes = [tried.run(TASK, counted_before=attempt) for attempt in range(3)]

    assert [outcome.tier for outcome in outcomes if isinstance(outcome, Retry)] == [
        "5m",
        "1h",
        "1h",
    ]


@pytest.mark.parametrize(("line", "tenant"), [({}, "acme"), ({"tenant": "bolt"}, "bolt")])
def test_a_handler_sees_for_whom_its_task_runs(line: dict[str, str], tenant: str) -> None:
    """A line without a tenant runs for that of its load, which only the row knows."""
    seen = []

    async def look(context: Context) -> None:
        seen.append(context.task.tenant)

    handlers_harness(document=look).run({**TASK, **line}, inherited=Inherited(tenant="acme"))

    assert seen == [tenant]
