"""The judge: from a reply to an outcome."""

import time
import zlib
from dataclasses import replace
from typing import Any

import orjson
import pytest

from docllm.agent.judge import judge
from docllm.agent.ports import CallFailed, Reply
from docllm.agent.ports.outcome import Retry, Snooze, Succeeded
from docllm.schemas.settings.config import Price
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.result.codec import COMPLETION, COMPLETION_ZLIB
from tests.support.replies import DEAD, FACTS, SNOOZED, became, completion, error

SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}


def test_success_is_stored_as_received() -> None:
    """An answer's body is stored byte for byte, with its usage and cost."""
    facts = replace(FACTS, prices={"m-1": Price(2.0, 10.0)})

    outcome = judge(Reply(200, {"x-request-id": "req_1"}, completion()), facts)

    assert isinstance(outcome, Succeeded)
    assert (outcome.body, outcome.codec) == (completion(), COMPLETION)
    spent = outcome.spent
    assert (spent.model, spent.tokens_in, spent.tokens_out, spent.cost_micro) == ("m-1", 12, 3, 54)
    assert (spent.call_id, spent.duration_ms) == ("req_1", 1200)


def test_a_large_success_is_packed() -> None:
    """From 4 KiB on the stored body is compressed, and unpacks to the received bytes."""
    body = completion("long " * 2000)

    outcome = judge(Reply(200, {}, body), FACTS)

    assert isinstance(outcome, Succeeded)
    assert outcome.codec == COMPLETION_ZLIB
    assert zlib.decompress(outcome.body) == body


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"input_tokens": 5, "output_tokens": 6}, (5, 6)),
        ({"prompt_tokens": 0, "completion_tokens": 4}, (0, 4)),
        ({"prompt_tokens": "7", "completion_tokens": -1}, (0, 0)),
        ({"prompt_tokens": True, "completion_tokens": 10**15}, (0, 2**31 - 1)),
        ({"prompt_tokens": 12.0, "completion_tokens": 1e300}, (12, 2**31 - 1)),
        ([], (0, 0)),
        (None, (0, 0)),
    ],
)
def test_usage_is_read_or_zero(usage: Any, tokens: tuple[int, int]) -> None:
    """Usage is read under the names in use; unknown or invalid counts are 0."""
    outcome = judge(Reply(200, {}, completion(usage=usage)), FACTS)

    assert (outcome.spent.tokens_in, outcome.spent.tokens_out) == tokens


@pytest.mark.parametrize(
    ("details", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 8}}, 8),
        ({"input_tokens_details": {"cached_tokens": 8.0}}, 8),
        ({"prompt_tokens_details": {"cached_tokens": 13}}, 12),
        ({"prompt_tokens_details": {"cached_tokens": -1}}, 0),
        ({"prompt_tokens_details": {"cached_tokens": "8"}}, 0),
        ({"prompt_tokens_details": {"cached_tokens": None}}, 0),
        ({"prompt_tokens_details": [8]}, 0),
        ({"prompt_tokens_details": None, "input_tokens_details": 8}, 0),
        ({}, 0),
    ],
)
def test_cached_tokens_are_a_part_of_the_prompt(details: dict[str, Any], cached: int) -> None:
    """Cached tokens are read wherever a provider names them, and never exceed the prompt's."""
    usage = {"prompt_tokens": 12, "completion_tokens": 3, **details}

    outcome = judge(Reply(200, {}, completion(usage=usage)), FACTS)

    assert (outcome.spent.tokens_in, outcome.spent.tokens_cached) == (12, cached)


@pytest.mark.parametrize(
    ("answer", "cost_micro"),
    [
        (CallFailed(ErrorClass.AMBIGUOUS, "it broke off"), 77),
        (CallFailed(ErrorClass.REPLY_TOO_LARGE, "above the limit"), 77),
        (Reply(200, {}, completion(usage=None)), 77),
        (Reply(200, {}, completion("", usage=None)), 77),
        (Reply(200, {}, b'{"choices": ['), 77),
        (CallFailed(ErrorClass.NETWORK, "nothing was sent"), 0),
        (CallFailed(ErrorClass.AUTH, "nothing was sent"), 0),
        (Reply(503, {}, b""), 0),
        (Reply(200, {}, b"<html>a page of a proxy</html>"), 0),
        (Reply(200, {}, error("overloaded", code=529)), 0),
    ],
)
def test_a_call_that_may_be_billed_counts_as_its_estimate(
    answer: Reply | CallFailed, cost_micro: int
) -> None:
    """A call without usage costs its estimate, unless the provider has made no answer."""
    spent = judge(answer, replace(FACTS, least_price_micro=77)).spent

    assert (spent.cost_micro, spent.unsure_micro) == (cost_micro, cost_micro)
    assert (spent.tokens_in, spent.tokens_out) == (0, 0)


@pytest.mark.parametrize(
    ("answer", "unpriced"),
    [
        (Reply(200, {}, completion()), 1),
        (Reply(200, {}, b'{"choices": [{"message": {"content": "it is"}}]}'), 1),
        (CallFailed(ErrorClass.AMBIGUOUS, "it broke off"), 1),
        (CallFailed(ErrorClass.NETWORK, "nothing was sent"), 0),
        (Reply(503, {}, b""), 0),
        (Reply(200, {}, error("overloaded", code=529)), 0),
    ],
)
def test_the_cost_of_an_answer_without_a_price_is_unknown(
    answer: Reply | CallFailed, unpriced: int
) -> None:
    """It is counted, unless the provider has made no answer; a price of 0 is a price."""
    free = replace(FACTS, prices={FACTS.model: Price(0.0, 0.0)})

    assert judge(answer, FACTS).spent.unpriced == unpriced
    assert judge(answer, free).spent.unpriced == 0


def test_a_known_cost_is_no_estimate() -> None:
    """Nothing is unsure about a call whose usage arrived."""
    facts = replace(FACTS, prices={"m-1": Price(2.0, 10.0)}, least_price_micro=77)

    spent = judge(Reply(200, {}, completion()), facts).spent

    assert (spent.cost_micro, spent.unsure_micro) == (54, 0)


def test_a_deep_answer_that_fits_no_alternative_is_refused_quickly() -> None:
    """A deep answer that fits none of many alternatives is refused quickly.

    Its errors would be too many to list: two of each level, for each of the next one.
    """
    either = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}
    schema = {"type": "object", "properties": {"inner": either}, "required": ["inner"]}
    deep = judge(
        Reply(200, {}, completion('{"inner":' * 60 + "{}" + "}" * 60)),
        replace(FACTS, schema=schema),
    )
    flat = judge(Reply(200, {}, completion('{"inner": 1}')), replace(FACTS, schema=schema))

    assert became(deep) == became(flat)
    assert deep.failure.text == "the answer does not fit the schema"  # type: ignore[union-attr]
    assert "at /inner" in flat.failure.text  # type: ignore[union-attr]


NAMES = [f"name {number}" for number in range(2000)]


@pytest.mark.parametrize(
    "schema",
    [
        {"propertyNames": {"pattern": "^[a-z]+$"}},
        {"required": NAMES},
        {"anyOf": [{"propertyNames": {"maxLength": 3}}, {"type": "string"}]},
        {"anyOf": [{"required": NAMES}, {"type": "string"}]},
        {"anyOf": [{"dependentRequired": {"0": NAMES}}, {"type": "string"}]},
        {"anyOf": [{"additionalProperties": {"enum": NAMES * 10}}, {"type": "string"}]},
    ],
    ids=lambda schema: str(schema)[:50],
)
def test_a_large_answer_with_many_errors_is_soon_refused(schema: dict[str, Any]) -> None:
    """A large answer with many errors is refused quickly.

    A list of all errors would copy the answer for each: gigabytes, and seconds without a heartbeat.
    """
    reply = Reply(
        200, {}, completion(orjson.dumps({str(number): number for number in range(2000)}).decode())
    )
    began = time.thread_time()

    outcome = judge(reply, replace(FACTS, schema=schema))

    assert "the answer does not fit the schema" in outcome.failure.text  # type: ignore[union-attr]
    assert time.thread_time() - began < 0.5


def test_tokens_of_a_bad_answer_are_counted() -> None:
    """An unusable answer's tokens are counted, because it was paid for."""
    outcome = judge(Reply(200, {}, completion(reason="length")), FACTS)

    assert (outcome.spent.tokens_in, outcome.spent.tokens_out) == (12, 3)


@pytest.mark.parametrize(
    ("status", "unversioned", "text"),
    [
        (404, True, "404: Not Found (does base_url lack /v1?)"),
        (404, False, "404: Not Found"),
        (401, True, "401: Not Found"),
    ],
)
def test_a_404_of_an_address_without_its_version_says_so(
    status: int, *, unversioned: bool, text: str
) -> None:
    """The provider's own words do not, and the route parks for a person who reads them."""
    reply = Reply(status, {}, b'{"detail":"Not Found"}', unversioned=unversioned)

    outcome = judge(reply, FACTS)

    assert isinstance(outcome, Snooze)
    assert outcome.failure.text == text


def test_without_a_providers_id_ours_is_the_trace() -> None:
    """If the provider gives a call no id, our request id is the trace."""
    assert judge(CallFailed(ErrorClass.NETWORK, "x"), FACTS).spent.call_id == "b/t#1"


def test_a_schema_that_cannot_be_used_ends_the_task() -> None:
    """A schema that cannot be used ends the task: the next call would be paid for in vain.

    A handler may pass any schema.
    """
    for schema in ({"type": "objekt"}, {"$ref": "http://127.0.0.1:1/x"}, {"pattern": "\\pL{9999}"}):
        outcome = judge(Reply(200, {}, completion("1")), replace(FACTS, schema=schema))

        assert became(outcome) == (DEAD, "permanent")
        assert outcome.failure.error_class == "BAD_REQUEST"  # type: ignore[union-attr]


def test_an_answer_in_parts_is_its_text() -> None:
    """An answer in parts is its text; one without any text is no answer.

    Reasoning models answer with a list, some parts of which are thoughts.
    """
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    parts = [thought, {"type": "text", "text": '{"total"'}, {"type": "text", "text": ": 3}"}]

    assert isinstance(
        judge(Reply(200, {}, completion(parts)), replace(FACTS, schema=SCHEMA)), Succeeded
    )
    assert judge(Reply(200, {}, completion([thought])), FACTS).failure.text == "the answer is empty"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "content",
    ['{"total": "secret words"}', "{}", "null", "not JSON", 'Total:\n```\n{"total": 3}\n```'],
)
def test_answer_that_does_not_fit_the_schema(content: str) -> None:
    """An answer that does not fit is bad output, whose text does not repeat the answer."""
    outcome = judge(Reply(200, {}, completion(content)), replace(FACTS, schema=SCHEMA))

    assert isinstance(outcome, Retry)
    assert outcome.failure.error_class == "BAD_OUTPUT"
    assert "secret" not in outcome.failure.text


def test_error_texts_hold_no_key() -> None:
    """A key in a provider's message is masked, and the text is one short line."""
    body = error(
        "Incorrect API key provided:\n sk-proj-abcdefgh1234. " + "x" * 5000, code="invalid_api_key"
    )

    outcome = judge(Reply(401, {}, body), FACTS)

    assert isinstance(outcome, Snooze)
    assert "abcdefgh" not in outcome.failure.text
    assert outcome.failure.text.startswith("401 invalid_api_key: Incorrect API key provided: ***")
    assert len(outcome.failure.text) <= 500
    assert "\n" not in outcome.failure.text


@pytest.mark.parametrize(
    ("status", "code", "seconds"),
    [
        (429, "rate_limit_exceeded", 360),
        (429, "slow_down", None),
        (503, "engine_overloaded", None),
        (402, "", None),
    ],
)
def test_a_rate_limits_reset_is_obeyed_by_that_class_alone(
    status: int, code: str, seconds: float | None
) -> None:
    """Only a task that met the rate limit waits for its reset; other refusals back off."""
    headers = {"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "0"}

    outcome = judge(Reply(status, headers, error(code=code)), FACTS)

    assert became(outcome) == (SNOOZED, 1.5 if seconds is None else seconds * 1.05)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (completion("I am sorry, I can not do that"), "I am sorry, I can not do that"),
        (completion("x" * 5000), "x" * 2000),
        (completion(None, message={"refusal": "No."}), "No."),
        (completion("half an ans", reason="length"), "half an ans"),
        (b'{"choices": [{"mess', '{"choices": [{"mess'),
        (
            b'{"id": 1, "choices": [{"message": {"content": "\xff',
            '{"id": 1, "choices": [{"message": {"content": "\\xff',
        ),
    ],
)
def test_what_the_model_said_is_kept_where_it_cannot_be_used(body: bytes, said: str) -> None:
    """The message's text, else the reply's body, as far as a person needs it."""
    outcome = judge(Reply(200, {}, body), replace(FACTS, schema=SCHEMA))

    assert not isinstance(outcome, Succeeded)
    assert outcome.failure.reply == said


def test_a_call_that_was_not_answered_keeps_no_reply() -> None:
    """A provider's refusal is the error's text already."""
    for reply in (Reply(400, {}, error("context_length_exceeded")), Reply(200, {}, b"<html>")):
        outcome = judge(reply, FACTS)

        assert not isinstance(outcome, Succeeded)
        assert outcome.failure.reply == ""
