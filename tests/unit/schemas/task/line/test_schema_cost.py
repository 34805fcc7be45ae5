"""Work that blocks the interpreter for long is recognized beforehand, at far lower cost."""

import time
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docllm.schemas.task.answer_schema import bounds
from docllm.schemas.task.answer_schema.validator import validator_of
from docllm.schemas.task.line.parsing import LineError, parse
from docllm.schemas.task.line.schema_cost import (
    LIGHT_VALUES,
    is_heavy,
    is_heavy_for,
    is_heavy_line,
)

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
INVOICE: dict[str, Any] = {
    "type": "object",
    "required": ["number", "lines"],
    "properties": {
        "number": {"type": "string", "pattern": r"^[A-Z]{2}-\d{4,8}$"},
        "date": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
        "customer": {"type": "string", "pattern": r"^[\p{L} .'-]{1,60}$"},
        "currency": {"enum": ["EUR", "USD", "CHF"]},
        "lines": {
            "type": "array",
            "items": {
                "properties": {"text": {"type": "string"}, "net": {"type": ["number", "null"]}}
            },
        },
    },
}
ANSWER = {
    "number": "RE-2024",
    "date": "2024-01-31",
    "customer": "Zoë",
    "lines": [{"text": "a, b", "net": 1.5}] * 20,
}

# A few kilobytes that blocked the interpreter for 11, 17, 6, 17 and 75 seconds.
LISTS = {"items": {"enum": [[number] for number in range(900)]}}
BOMBS: dict[str, tuple[dict[str, Any], Any]] = {
    "lists in an enum": (LISTS, [[899]] * 1_500),
    "many bounds": (
        {"items": {"allOf": [{"minimum": -number} for number in range(50_000)]}},
        [0] * 20_000,
    ),
    "a large constant": ({"items": {"const": [1] * 1_000}}, [[1] * 1_000] * 100),
    "a pattern that looks around": ({"pattern": r"(?=.*x)(?=.*y).*"}, "b" * 100_000),
    "patterns in the answer": (
        {"$schema": DRAFT_7, "items": {"format": "regex"}},
        [r"\pL{300}"] * 1_000,
    ),
    "a pattern of many letters": ({"pattern": r"(\pL{1,50}x){1,5}$"}, "ä" * 100_000),
    "a slow pattern": ({"pattern": r"\pL{300}"}, "a"),
}


def reply(answer: Any) -> bytes:
    content = orjson.dumps(answer).decode()
    return orjson.dumps({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]})


def with_schema(schema: Any) -> bytes:
    return orjson.dumps({"id": "s", "prompt": "x", "schema": schema})


@pytest.mark.parametrize("name", BOMBS)
def test_an_answer_that_takes_long_to_judge_is_known(name: str) -> None:
    """An expensive answer is recognized before it is judged and its schema is compiled."""
    schema, answer = BOMBS[name]

    assert is_heavy_for(schema, reply(answer))


@pytest.mark.parametrize(
    "name", ["lists in an enum", "a large constant", "a pattern that looks around"]
)
def test_weighing_costs_a_fraction_of_judging(name: str) -> None:
    """The estimate takes a fraction of the judging, or it would itself block the interpreter.

    Both are measured on the present machine.
    """
    schema, answer = BOMBS[name]
    body, validator = reply(answer), validator_of(schema)
    is_heavy_for(schema, body)

    began_s = time.thread_time()
    is_heavy_for(schema, body)
    weighed_s = time.thread_time() - began_s
    began_s = time.thread_time()
    validator.is_valid(answer)
    judged_s = time.thread_time() - began_s

    assert weighed_s * 10 < judged_s


def test_escapes_hide_nothing() -> None:
    """An answer's separators count even as escapes of the text that holds it."""
    hidden = reply([[899]] * 1_500).replace(b"[", b"\\u005b").replace(b",", b"\\u002c")

    assert is_heavy_for(LISTS, hidden)


def test_ordinary_schemas_are_light() -> None:
    """Ordinary schemas are light and judged in place at no further cost."""
    assert not is_heavy(INVOICE)
    assert not is_heavy_for(INVOICE, reply(ANSWER))
    assert not is_heavy_line(with_schema(INVOICE))
    assert not is_heavy_line(
        orjson.dumps({"id": "a", "prompt": "Sum.", "input": {"text": "one, two, three. " * 5_000}})
    )


HEAVY_LINES = {
    "a slow pattern": with_schema({"pattern": r"\pL{300}"}),
    "a slow pattern in an escaped field": with_schema({"pattern": r"\pL{300}"}).replace(
        b"schema", b"sch\\u0065ma"
    ),
    "a repeated group": with_schema({"properties": {"a": {"pattern": r"^(\p{L}{20}[ -]?){10}$"}}}),
    "a large schema": with_schema(
        {"properties": {str(number): {"type": "string"} for number in range(LIGHT_VALUES)}}
    ),
    "many values": orjson.dumps({"id": "a", "prompt": "p", "metadata": {"a": [1] * 30_000}}),
}


@pytest.mark.parametrize("name", HEAVY_LINES)
def test_a_line_that_takes_long_to_read_is_known(name: str) -> None:
    """Expensive lines are recognized: some of 56 bytes took 0.1 s of the event loop each."""
    assert is_heavy_line(HEAVY_LINES[name])


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b'"schema"',
        b'{"schema":7}',
        b'{"schema":{"a":\\u}}',
        b'{"schema":{}}',
    ],
)
def test_a_value_that_is_no_line_is_light(value: bytes) -> None:
    """A line that is no JSON is light, because it is refused quickly."""
    assert not is_heavy_line(value)


@given(
    schema=st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
@settings(max_examples=50)
def test_anything_can_be_weighed(schema: Any) -> None:
    """Any value can be estimated, even one that is no JSON.

    A schema may be any JSON object, and a handler's own may be none.
    """
    is_heavy_for({"items": schema}, b"[]")


def test_enums_of_lists_are_limited() -> None:
    """Enums of lists are limited, because each is compared as a whole.

    Texts and numbers are looked up, and may be many.
    """
    most = bounds.MAX_COMPOSITE_CHOICES
    parse(with_schema({"enum": [[number] for number in range(most)]}))
    parse(with_schema({"enum": [str(number) for number in range(5 * most)]}))

    with pytest.raises(LineError, match="more than 1000 lists and objects in its enums"):
        parse(with_schema({"items": {"enum": [[number] for number in range(most + 1)]}}))
