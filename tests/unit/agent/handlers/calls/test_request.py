"""The request of a task."""

from typing import Any

import orjson
import pytest

from docllm.agent.handlers import DocumentError
from docllm.agent.handlers.calls.request import chat_body, request_id
from docllm.schemas.settings.config import Structured
from docllm.schemas.task.line.parsing import parse
from tests.support.handlers import OPENAI, TASK, handlers_harness

SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}


def body_of(
    task: dict[str, Any], document: str | None = None, model: str | None = None
) -> dict[str, Any]:
    return chat_body(parse(orjson.dumps(task)), document, model)


def test_the_document_takes_the_placeholders_place_literally() -> None:
    """The document replaces the placeholder literally: braces stay, and no second pass is made.

    A placeholder inside the document is text.
    """
    task = TASK | {"prompt": 'As {"json": true}: {document} {x}'}

    body = body_of(task, document="about {document} \\1", model="m")

    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": 'As {"json": true}: about {document} \\1 {x}'}],
    }


def test_a_prompt_that_would_be_too_long_is_refused() -> None:
    """A prompt's length is checked before memory is taken for it; the error names the limit."""
    task = {"id": "a", "prompt": "{document}" * 40, "input": {"uri": "file:///a"}}
    longer = task | {"prompt": "{document}" * 100_000}

    assert len(body_of(task, "x" * 1_000_000)["messages"][0]["content"]) == 40_000_000
    with pytest.raises(
        DocumentError, match=r"100000000000 characters .* at most 40000000"
    ) as refused:
        body_of(longer, "x" * 1_000_000)
    assert refused.value.failure.error_class == "DOCUMENT_REFUSED"


def test_a_model_that_is_null_is_the_configured_one() -> None:
    """OpenAI's clients write null for what is not set; everything else is sent as it is."""
    line = OPENAI | {"body": {"model": None, "messages": [{"role": "user"}], "stream": None}}

    assert body_of(line, model="m") == line["body"] | {"model": "m"}


def test_params_and_schema_go_into_the_body() -> None:
    """A schema becomes a response format; params win over it; the task's model wins too.

    It wins over the default model.
    """
    body = body_of(
        TASK | {"schema": SCHEMA, "params": {"temperature": 0}, "model": "mine"}, "d", "default"
    )
    chosen = body_of(
        TASK | {"schema": SCHEMA, "params": {"response_format": {"type": "json_object"}}}, "d"
    )

    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": SCHEMA},
    }
    assert (body["temperature"], body["model"]) == (0, "mine")
    assert chosen["response_format"] == {"type": "json_object"}
    assert "model" not in chosen


@pytest.mark.parametrize(
    ("structured", "fields"),
    [
        (Structured.JSON_OBJECT, {"response_format": {"type": "json_object", "schema": SCHEMA}}),
        (Structured.NONE, {}),
    ],
)
def test_a_schema_is_sent_in_the_form_that_the_server_takes(
    structured: Structured, fields: dict[str, Any]
) -> None:
    """A task's own response format wins over every form."""
    task = parse(orjson.dumps(TASK | {"schema": SCHEMA}))
    params = {"response_format": {"type": "text"}}
    chosen = parse(orjson.dumps(TASK | {"schema": SCHEMA, "params": params}))

    sent = chat_body(task, "d", "m", structured)

    assert sent.keys() == {"model", "messages", *fields}
    assert sent.get("response_format") == fields.get("response_format")
    assert chat_body(chosen, "d", "m", structured)["response_format"] == {"type": "text"}


def test_an_openai_lines_body_goes_as_it_is() -> None:
    """An OpenAI line's body is sent as it is; the model is only added if it names none."""
    named = OPENAI | {"body": OPENAI["body"] | {"model": "theirs", "seed": 3}}

    assert body_of(OPENAI, model="m") == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
    }
    assert body_of(named, model="m") == named["body"]


def test_request_ids_are_encoded_and_short() -> None:
    """Batch and id are percent-encoded; long ids are cut below 512 characters, and differ."""
    long = [request_id(batch="b", key="\u00e9" * 190 + last, attempt="1") for last in "xy"]

    assert (
        request_id(batch="my batch", key="a/1#\u00e9", attempt="3") == "my%20batch/a%2F1%23%C3%A9#3"
    )
    assert [len(name) for name in long] == [512, 512]
    assert long[0] != long[1]
    assert all(name.isascii() and name.endswith("#1") for name in long)


def test_a_call_keeps_within_the_claim() -> None:
    """A call's time limit is the smallest of its route's, the claim's rest, and a probe's."""
    ample, short, probe = handlers_harness(), handlers_harness(), handlers_harness()

    ample.run(left_s=600, limit_s=90.0)
    short.run(left_s=4)
    probe.run(left_s=600, limit_s=2.5)

    assert [harness.llm.calls[0].timeout_s for harness in (ample, short, probe)] == [30, 4, 2.5]
    assert ample.llm.calls[0].request_id == "b/a%2F1#1"
