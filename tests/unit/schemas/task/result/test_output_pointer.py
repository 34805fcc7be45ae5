"""The objects of results outside the ledger, and the pointers that the ledger keeps for them."""

import zlib
from dataclasses import replace

import orjson
import pytest

from docllm.schemas.task.result.answer import answer_value
from docllm.schemas.task.result.codec import (
    COMPLETION,
    COMPLETION_ZLIB,
    JSON_COMPLETION,
    JSON_COMPLETION_ZLIB,
    VALUE,
    VALUE_ZLIB,
)
from docllm.schemas.task.result.output_pointer import (
    Output,
    OutputAlteredError,
    OutputPointer,
    output_of,
)

URI = "file:///out/a-1-0.json"
ANSWER = orjson.dumps({"id": "c", "choices": [{"message": {"content": '{"n": 1}'}}]})
LINE = b'{"id": "a", "prompt": "p"}'


def made(codec: int, stored: bytes) -> Output:
    return output_of(key="a", batch="b", codec=codec, stored=stored)


@pytest.mark.parametrize(
    ("codec", "stored", "plain"),
    [
        (COMPLETION, ANSWER, COMPLETION),
        (COMPLETION_ZLIB, zlib.compress(ANSWER), COMPLETION),
        (JSON_COMPLETION, ANSWER, JSON_COMPLETION),
        (JSON_COMPLETION_ZLIB, zlib.compress(ANSWER), JSON_COMPLETION),
        (VALUE, b"[1.0, 12345678901234567890123]", VALUE),
        (VALUE_ZLIB, zlib.compress(b"null"), VALUE),
    ],
)
def test_the_stored_result_comes_back_byte_for_byte(codec: int, stored: bytes, plain: int) -> None:
    """An export from objects equals one from the ledger."""
    output = made(codec, stored)
    pointer = OutputPointer.of_stored(output.pointer(URI).stored())

    body = pointer.result_in(output.content)

    assert (pointer.codec, pointer.uri) == (plain, URI)
    assert body == (zlib.decompress(stored) if codec != plain else stored)


def test_an_object_has_what_a_reader_wants() -> None:
    """The object is JSON with the task's id, its batch, the answer and the whole completion."""
    assert orjson.loads(made(COMPLETION, ANSWER).content) == {
        "id": "a",
        "batch": "b",
        "result": '{"n": 1}',
        "completion": orjson.loads(ANSWER),
    }
    assert orjson.loads(made(VALUE, b"[7]").content) == {"id": "a", "batch": "b", "result": [7]}


def test_an_object_has_the_answer_as_an_export_has_it() -> None:
    """Under a schema the answer is JSON and no text."""
    result = orjson.loads(made(JSON_COMPLETION, ANSWER).content)["result"]
    assert result == answer_value(LINE, JSON_COMPLETION, ANSWER) == {"n": 1}


def test_an_altered_object_is_not_taken() -> None:
    """Size and digest are those of the whole object, so that nothing in it can be changed."""
    output = made(COMPLETION, ANSWER)
    pointer = output.pointer(URI)

    with pytest.raises(OutputAlteredError, match="it has 1 bytes"):
        pointer.result_in(b"x")
    with pytest.raises(OutputAlteredError, match="its SHA-256 is another one"):
        pointer.result_in(output.content.replace(b'"a"', b'"z"', 1))


def test_a_pointer_of_a_newer_version_is_read() -> None:
    """A version to come may store more about an object."""
    pointer = made(VALUE, b"1").pointer(URI)
    stored = orjson.dumps(orjson.loads(pointer.stored()) | {"etag": "x"})
    assert OutputPointer.of_stored(stored) == pointer
    assert replace(pointer, uri="file:///other") != pointer
