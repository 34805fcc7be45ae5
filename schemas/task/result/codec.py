"""The encodings of a stored result.

A result is a provider's answer as it was sent, or a JSON value that a handler returned. An answer's
text is known to be JSON if the task's type has a schema. Each result may be compressed. If a result
lies outside the ledger, the pointer to it takes its place. A result that was erased is empty.
"""

import zlib

# As stored in `task_result.codec`.
COMPLETION = 0
COMPLETION_ZLIB = 1
VALUE = 2
VALUE_ZLIB = 3
JSON_COMPLETION = 4
JSON_COMPLETION_ZLIB = 5
POINTER = 6
EXPIRED = 7  # an erasure has deleted the result
# The thoughts that the text begins with are not a part of the answer.
COMPLETION_AFTER_THOUGHTS = 8
COMPLETION_AFTER_THOUGHTS_ZLIB = 9
# Maps each encoding that does not state that the text is JSON to the equal encoding that does.
WITH_JSON = {COMPLETION: JSON_COMPLETION, COMPLETION_ZLIB: JSON_COMPLETION_ZLIB}
_ZLIB = {
    COMPLETION: COMPLETION_ZLIB,
    VALUE: VALUE_ZLIB,
    JSON_COMPLETION: JSON_COMPLETION_ZLIB,
    COMPLETION_AFTER_THOUGHTS: COMPLETION_AFTER_THOUGHTS_ZLIB,
}
_PLAIN = {packed: plain for plain, packed in _ZLIB.items()}
MIN_PACKED_BYTES = 4 << 10  # smaller results are not compressed
_VALUES = (VALUE, VALUE_ZLIB)


def pack_result(codec: int, body: bytes) -> tuple[bytes, int]:
    """Return a result as it is stored, compressed if it is large, and its encoding then."""
    if len(body) < MIN_PACKED_BYTES:
        return body, codec
    return zlib.compress(body, 1), _ZLIB[codec]


def unpacked(codec: int, body: bytes) -> bytes:
    """Return a stored result as JSON bytes."""
    return zlib.decompress(body) if codec in _PLAIN else body


def is_value(codec: int) -> bool:
    """Return whether the result is a handler's JSON value, not a provider's completion."""
    return codec in _VALUES


def has_json(codec: int) -> bool:
    """Return whether the text of a completion is JSON, whatever the task's line says."""
    return codec in WITH_JSON.values()


def has_thoughts(codec: int) -> bool:
    """Return whether the text of a completion begins with thoughts, which are no answer."""
    return codec in {COMPLETION_AFTER_THOUGHTS, COMPLETION_AFTER_THOUGHTS_ZLIB}


def with_json(codec: int) -> int:
    """Return the encoding of the same result, if the text of a completion is known to be JSON."""
    return WITH_JSON.get(codec, codec)


def plain(codec: int) -> int:
    """Return the encoding of the same result without compression."""
    return _PLAIN.get(codec, codec)
