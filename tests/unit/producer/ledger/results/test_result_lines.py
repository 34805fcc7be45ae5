"""Result lines: the answer as it was written, on one line whatever is stored."""

import json
from dataclasses import replace
from datetime import datetime

import orjson
import pytest

from docllm.producer.ledger.results.result_lines import (
    ExportedTask,
    LineOf,
    Result,
    docllm_line,
    openai_line,
)
from docllm.schemas.task.result.codec import COMPLETION, COMPLETION_ZLIB, VALUE, VALUE_ZLIB
from docllm.schemas.task.states import Status

# The database's times are UTC without a zone.
ENDED = datetime(2027, 1, 31, 18, 0, 0, 120000)  # noqa: DTZ001
DEEP = b"[" * 260 + b"]" * 260
TOO_DEEP = "[" * 2000 + "]" * 2000


def completion(text: object) -> bytes:
    return orjson.dumps(
        {"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}
    )


def ended(body: bytes, codec: int = COMPLETION) -> ExportedTask:
    """Return a task with a schema that succeeded with this result."""
    result = Result(codec=codec, body=body, model="m", call_id="req-1", created_at=ENDED)
    return ExportedTask(
        task_id=1,
        key="a",
        status=Status.SUCCEEDED,
        counted_attempts=0,
        input=b'{"id":"a","prompt":"p","schema":{}}',
        tokens_in=10,
        tokens_out=5,
        cost_micro=1_500,
        result=result,
        letter=None,
    )


def line(task: ExportedTask, line_of: LineOf = docllm_line) -> bytes:
    """Return the task's line; fail if it has none."""
    line_written = line_of(task)
    assert line_written is not None
    return line_written


@pytest.mark.parametrize(
    ("body", "codec", "written"),
    [
        (
            completion('{"iban": 12345678901234567890123, "sum": 1.50}'),
            COMPLETION,
            b'{"iban": 12345678901234567890123, "sum": 1.50}',
        ),
        (completion(DEEP.decode()), COMPLETION, DEEP),
        (completion('{\r\n"n": "a\\nb"}'), COMPLETION, b'{  "n": "a\\nb"}'),
        (
            completion(
                [{"type": "thinking", "thinking": []}, {"type": "text", "text": '{"sum": 1.50}'}]
            ),
            COMPLETION,
            b'{"sum": 1.50}',
        ),
        (b'{"n":12345678901234567890123}', VALUE, b'{"n":12345678901234567890123}'),
    ],
    ids=["numbers", "deep", "line breaks", "parts", "value"],
)
def test_an_answer_of_json_is_exported_as_it_was_written(
    body: bytes, codec: int, written: bytes
) -> None:
    """A JSON answer keeps every digit and depth; only line breaks become blanks."""
    assert b'"result":' + written + b',"error"' in line(ended(body, codec))


@pytest.mark.parametrize("line_of", [docllm_line, openai_line])
@pytest.mark.parametrize(
    ("body", "codec"),
    [
        (b'{"choices":[\n{"message":{"content":%s}}]}' % DEEP, COMPLETION),
        (completion(TOO_DEEP), COMPLETION),
        (completion('{"n": NaN}'), COMPLETION),
        (b"no JSON \xff", COMPLETION),
        (b"[1]", COMPLETION),
        (b"damaged", COMPLETION_ZLIB),
        (b"damaged", VALUE_ZLIB),
        (b'{"n": NaN}', VALUE),
    ],
)
def test_every_result_has_its_line(line_of: LineOf, body: bytes, codec: int) -> None:
    """Any stored result makes one line of JSON, so no row stops the export of others."""
    result = line(ended(body, codec), line_of)

    assert result.index(b"\n") == len(result) - 1
    assert b"\r" not in result
    assert json.loads(result, parse_constant=pytest.fail)["id"] in {"a", "batch_req_1"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (completion(TOO_DEEP), TOO_DEEP),
        (completion('{"n": nothing}'), '{"n": nothing}'),
        (b"no JSON \xff", "no JSON \\xff"),
    ],
)
def test_a_result_that_is_no_json_is_exported_as_text(body: bytes, text: str) -> None:
    """A result that is too deep or no JSON is exported as text: nothing paid is left out."""
    assert json.loads(line(ended(body)))["result"] == text


@pytest.mark.parametrize(
    ("micro", "unpriced", "cost"),
    [(0, 1, None), (0, 0, 0.0), (1_500, 0, 0.0015), (1_500, 2, 0.0015)],
)
def test_a_cost_is_null_if_no_call_has_a_price(
    micro: int, unpriced: int, cost: float | None
) -> None:
    """A price of 0 is a price; beside what is known stands how many calls are not in it."""
    task = replace(ended(completion("x")), cost_micro=micro, unpriced=unpriced)

    fields = orjson.loads(line(task))
    assert fields["cost"] == cost
    assert fields.get("unpriced_calls", 0) == (unpriced if micro else 0)


def test_tokens_are_null_if_the_provider_did_not_say() -> None:
    """An answer has tokens, so that 0 would be a lie; a task without a call has none."""
    answered = replace(ended(completion("x")), tokens_in=0, tokens_out=0)
    waiting = replace(answered, status=Status.PENDING, result=None)

    said = [orjson.loads(line(task)) for task in (answered, waiting)]
    assert [(fields["tokens_in"], fields["tokens_out"]) for fields in said] == [
        (None, None),
        (0, 0),
    ]
