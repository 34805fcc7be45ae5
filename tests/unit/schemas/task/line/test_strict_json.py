"""Strict JSON for one task line."""

import orjson
import pytest

from docllm.schemas.task.line.parsing import LineError, parse
from docllm.schemas.task.line.strict_json import MAX_VALUES
from tests.unit.schemas.task.line.test_parsing import OPENAI

# Not JSON, or JSON that two readers could read in different ways.
BROKEN = [
    (b"", "", "is not JSON"),
    (b"{", "", "is not JSON"),
    (b"[]", "", "not a JSON object"),
    (b'"a"', "", "not a JSON object"),
    (b'{"id": "a", "prompt": NaN}', "", "is not JSON"),
    (b'{"id": "a", "metadata": {"x": 1e999}}', "", "is not JSON"),
    (b'{"id": "\\ud800", "prompt": "p"}', "", "is not JSON"),
    (b'{"id": "a", "prompt": "p"} {}', "", "is not JSON"),
    (b'{"id": "a", "prompt": "\xff"}', "", "not UTF-8 at byte 24"),
    (b'{"id": "a", "id": "b", "prompt": "p"}', "id", "twice"),
    (b'{"id": "a", "id": "a", "prompt": "a:b"}', "id", "twice"),
    (b'{"id": "a", "prompt": "p", "metadata": [{"x": {"y": ":", "y": 2}}]}', "y", "twice"),
    (b'{"id": "a", "prompt": "p", "metadata": {"x": [{"y": ":", "y": 2}]}}', "y", "twice"),
    (b'{"id": "a", "prompt": "p", "metadata": {"x\\u003a": 1, "x:": 2}}', "x:", "twice"),
    (
        (
            b'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": '
            b'{"model": "m", "model": "n"}}'
        ),
        "model",
        "twice",
    ),
    (
        b'{"id": "a", "prompt": "p", "metadata": ' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"}",
        "",
        "250 levels",
    ),
    (
        b'{"id": "a", "prompt": "p", "metadata": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}",
        "",
        "250 levels",
    ),
    (
        b'{"id": "a", "prompt": "p", "metadata": '
        + b"[" * 1000
        + b"]" * 1000
        + b', "metadata": {}}',
        "",
        "250 levels",
    ),
    (
        b'{"id": "a", "prompt": "p", "params": {"seed": 18446744073709551616}}',
        "params.seed",
        "beyond 64 bits",
    ),
    (
        b'{"id": "a", "prompt": "p", "schema": {"allOf": [{"minimum": -9223372036854775809}]}}',
        "schema.allOf",
        "beyond 64 bits",
    ),
    (orjson.dumps(OPENAI)[:-2] + b',"x":1' + b"0" * 200 + b"}}", "body.x", "beyond 64 bits"),
    (b'{"id": "a", "prompt": "' + b"p" * (3 << 20) + b'"}', "", "bytes long"),
]


@pytest.mark.parametrize(("value", "field", "words"), BROKEN, ids=lambda part: repr(part)[:60])
def test_bytes_that_are_no_clear_json_object_are_refused(
    value: bytes, field: str, words: str
) -> None:
    """Broken JSON, doubled names, deep nesting and oversize are errors.

    They never crash the reader, and it never makes a silent choice.
    """
    with pytest.raises(LineError) as refused:
        parse(value)

    assert (refused.value.field, words in refused.value.error) == (field, True), refused.value


def test_a_line_of_very_many_values_is_refused() -> None:
    """A line with very many values is refused.

    A million empty lists in 3 MiB took a third of a second to read, each time.
    """
    with pytest.raises(LineError, match=f"holds more than {MAX_VALUES} JSON values"):
        parse(b'{"id":"a","prompt":"p","metadata":{"a":[' + b"[]," * MAX_VALUES + b"[]]}}")

    commas = orjson.dumps({"id": "a", "prompt": "p", "metadata": {"a": "," * 2 * MAX_VALUES}})
    assert parse(commas).key == "a"
