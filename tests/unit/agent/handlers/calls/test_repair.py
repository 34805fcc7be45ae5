"""An answer that does not fit its schema is sent back once, with what is wrong with it."""

from typing import Any

import orjson
import pytest

from docllm.agent.handlers import Context
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Retry, Snooze, Succeeded
from docllm.schemas.settings.config import Structured
from tests.support.handlers import (
    TASK,
    HandlersHarness,
    completion,
    failure_of,
    handlers_harness,
    succeeded,
)

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
WANTED = TASK | {"schema": SCHEMA}
GOOD, BAD, NO_JSON = '{"n": 1}', '{"n": "one"}', "The number is 1."


def sent(tried: HandlersHarness) -> list[list[dict[str, str]]]:
    """Return the messages of each call."""
    return [orjson.loads(call.body)["messages"] for call in tried.llm.calls]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [(BAD, 'at /n: the value is not of type "integer"'), (NO_JSON, "the answer is not JSON")],
)
def test_an_unfit_answer_is_corrected(answer: str, complaint: str) -> None:
    """The second answer is the result; both calls are paid for, in one attempt."""
    tried = handlers_harness(completion(answer), completion(GOOD))

    outcome = succeeded(tried.run(WANTED))

    assert outcome.body == completion(GOOD).body
    assert (outcome.spent.tokens_in, outcome.spent.cost_micro) == (20, 24)
    first, second = sent(tried)
    assert second[: len(first)] == first
    assert second[len(first)] == {"role": "assistant", "content": answer}
    assert complaint in second[-1]["content"]
    assert orjson.dumps(SCHEMA).decode() in second[-1]["content"]
    assert [call.request_id for call in tried.llm.calls] == ["b/a%2F1#1", "b/a%2F1#1.2"]


def test_an_answer_is_corrected_once() -> None:
    """A second unfit answer is the attempt's counted failure, with the cost of both calls."""
    tried = handlers_harness(completion(BAD), completion(NO_JSON), completion(GOOD))

    outcome = tried.run(WANTED)

    assert isinstance(outcome, Retry)
    assert failure_of(outcome).error_class == "BAD_OUTPUT"
    assert (len(tried.llm.calls), outcome.spent.cost_micro) == (2, 24)


def test_a_refused_correction_ends_the_attempt_as_any_refused_call() -> None:
    """The first answer is paid for all the same."""
    tried = handlers_harness(completion(BAD), Reply(429, {}, b""))

    outcome = tried.run(WANTED)

    assert isinstance(outcome, Snooze)
    assert outcome.spent.cost_micro == 12


@pytest.mark.parametrize(
    "reply",
    [
        completion(""),
        completion(BAD, reason="length"),
        completion(BAD, reason="content_filter"),
        Reply(200, {}, b"{"),
        Reply(503, {}, b""),
        completion('"' + "x" * 200_001),
    ],
)
def test_nothing_else_is_sent_back(reply: Reply) -> None:
    """An answer that is empty, cut, filtered, broken or very long is no answer to correct."""
    tried = handlers_harness(reply, completion(GOOD))

    assert not isinstance(tried.run(WANTED), Succeeded)
    assert len(tried.llm.calls) == 1


def test_a_task_without_schema_has_nothing_to_correct() -> None:
    """Any text is its answer."""
    tried = handlers_harness(completion(NO_JSON))

    assert isinstance(tried.run(), Succeeded)
    assert len(tried.llm.calls) == 1


@pytest.mark.parametrize("form", Structured)
def test_each_form_of_structured_output_is_corrected(form: Structured) -> None:
    """Whether or not the server knows schemas, the correction names the schema in its text."""

    async def ask(context: Context) -> Any:
        messages = [{"role": "user", "content": "How many?"}]
        forms = {} if form is Structured.NONE else {"response_format": {"type": form.value}}
        return await context.complete({"messages": messages, **forms}, schema=SCHEMA)

    tried = handlers_harness(completion(BAD), completion(GOOD), document=ask)

    assert isinstance(tried.run(), Succeeded)
    bodies = [orjson.loads(call.body) for call in tried.llm.calls]
    assert bodies[0].get("response_format") == bodies[1].get("response_format")
    assert '"integer"' in bodies[1]["messages"][-1]["content"]


def test_each_answer_of_a_handler_may_be_corrected() -> None:
    """A handler that calls several times gets each answer as it asked for it."""

    async def twice(context: Context) -> Any:
        answers = [
            await context.complete({"messages": []}, schema=SCHEMA),
            await context.complete({"messages": []}, schema=SCHEMA),
        ]
        return [answer.text for answer in answers]

    tried = handlers_harness(
        completion(BAD), completion(GOOD), completion(BAD), completion(GOOD), document=twice
    )

    outcome = succeeded(tried.run())

    assert orjson.loads(outcome.body) == [GOOD, GOOD]
    assert outcome.spent.cost_micro == 48
