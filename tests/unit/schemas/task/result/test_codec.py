"""The encodings of a stored result."""

import zlib

import pytest

from docllm.schemas.task.result.codec import (
    COMPLETION,
    COMPLETION_ZLIB,
    MIN_PACKED_BYTES,
    VALUE,
    VALUE_ZLIB,
    is_value,
    pack_result,
    unpacked,
)

BODY = b'{"answer": 42}'


def test_the_codecs_keep_the_numbers_that_the_database_stores() -> None:
    """Results of older versions are read by them."""
    assert (COMPLETION, COMPLETION_ZLIB, VALUE, VALUE_ZLIB) == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("codec", "body", "value"),
    [
        (COMPLETION, BODY, False),
        (COMPLETION_ZLIB, zlib.compress(BODY), False),
        (VALUE, BODY, True),
        (VALUE_ZLIB, zlib.compress(BODY), True),
    ],
)
def test_a_stored_result_is_json_again(codec: int, body: bytes, value: bool) -> None:  # noqa: FBT001
    """A handler's value is told from a provider's completion by its codec alone."""
    assert unpacked(codec, body) == BODY
    assert is_value(codec) is value


@pytest.mark.parametrize(("plain", "small"), [(COMPLETION, COMPLETION_ZLIB), (VALUE, VALUE_ZLIB)])
def test_a_large_result_is_compressed(plain: int, small: int) -> None:
    """A small one would not gain from it."""
    large = b'"' + b"a" * MIN_PACKED_BYTES + b'"'

    body, codec = pack_result(plain, large)

    assert codec == small
    assert len(body) < len(large)
    assert unpacked(codec, body) == large
    assert pack_result(plain, BODY) == (BODY, plain)
