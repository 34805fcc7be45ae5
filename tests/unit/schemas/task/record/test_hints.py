"""Headers hint what a task's line says, and no nonsense in them does harm."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.producer.loading.task_row import new_task
from docllm.schemas.task.line.parsing import parse
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.hints import (
    PLAIN,
    Hints,
    decode_hints,
    encode_hints,
    hints_of,
    hints_of_body,
)

DOCUMENT = {"id": "a", "prompt": "{document}", "input": {"text": "x"}}
OPENAI = {
    "custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
    "body": {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 9, "n": 2},
}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "hints"),
    [
        (DOCUMENT, PLAIN),
        (DOCUMENT | {"type": "document", "params": {"seed": 1}}, PLAIN),
        (DOCUMENT | {"model": "gr\u00f6\u00dfer  4"}, Hints(model="gr\u00f6\u00dfer  4")),
        (DOCUMENT | {"route": "eu", "type": "note"}, Hints("note", route="eu")),
        (DOCUMENT | {"params": {"max_tokens": 5}}, Hints(most_out=5)),
        (DOCUMENT | {"input": {"uri": "file:///a", "size": 70}}, Hints(document_bytes=70)),
        (DOCUMENT | {"input": {"uri": "file:///a"}}, Hints(document_bytes=0)),
        (OPENAI, Hints("openai", "m", most_out=18)),
    ],
)
def test_a_line_has_the_same_hints_wherever_they_are_read(
    line: dict[str, object], hints: Hints
) -> None:
    """The loader, the relay, the header's reader and the agent after its claim agree."""
    value = orjson.dumps(line)

    assert hints_of(line) == hints_of_body(value) == hints
    loaded = new_task(parse(value), value, lambda _type: 5, raw_key=None)
    assert decode_hints(dict(encode_hints(loaded.hints))) == hints


def test_a_plain_task_has_no_header_for_them() -> None:
    """What is not used costs no byte of a record."""
    assert encode_hints(PLAIN) == []
    assert decode_hints({"docllm-task": b"7"}) is PLAIN


def test_a_text_that_is_too_long_is_left_out() -> None:
    """The body says it after the claim."""
    assert encode_hints(Hints(model="m" * 1001, route="r")) == [(header_names.ROUTE, b"r")]


@pytest.mark.parametrize("number", [b"", b"-1", b"1e9", b"9" * 19, b"\xff", "\u0661".encode()])
def test_a_number_that_is_none_says_nothing(number: bytes) -> None:
    """A task is not lost for it."""
    headers = {header_names.DOCUMENT_BYTES: number, header_names.MOST_OUT: number}

    assert decode_hints(headers) == Hints(document_bytes=0)


NAMES = st.sampled_from(
    ["docllm-type", "docllm-model", "docllm-route", "docllm-bytes", "docllm-out"]
)


@given(st.dictionaries(NAMES | st.just("docllm-out"), st.binary(max_size=2000)))
def test_no_header_breaks_the_reading(headers: dict[str, bytes]) -> None:
    """Any bytes give hints within bounds."""
    hints = decode_hints(headers)

    assert all(len(text.encode()) <= 3000 for text in hints[:3])
    assert all(number is None or 0 <= number <= 1 << 40 for number in hints[3:])


@given(st.binary())
def test_a_body_that_cannot_be_read_hints_nothing(value: bytes) -> None:
    """The relay publishes it all the same; its attempt says what is wrong."""
    assert hints_of_body(value) == PLAIN
