"""The encodings of a stored result.

A result is a provider's answer as it was sent, or a JSON value that a handler returned. An answer's
text is known to be JSON if the task's type has a schema. Each result may be compressed. If a result
lies outside the ledger, the pointer to it takes its place. A result that a purge deleted is empty.
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
EXPIRED = 7  # a purge has deleted the result
_PACKED = (COMPLETION_ZLIB, VALUE_ZLIB, JSON_COMPLETION_ZLIB)
# Maps each encoding that does not state that the text is JSON to the equal encoding that does.
WITH_JSON = {COMPLETION: JSON_COMPLETION, COMPLETION_ZLIB: JSON_COMPLETION_ZLIB}
_VALUES = (VALUE, VALUE_ZLIB)
_PLAIN = {COMPLETION_ZLIB: COMPLETION, VALUE_ZLIB: VALUE, JSON_COMPLETION_ZLIB: JSON_COMPLETION}


def unpacked(codec: int, body: bytes) -> bytes:
    """Return a stored result as JSON bytes."""
    return zlib.decompress(body) if codec in _PACKED else body


def is_value(codec: int) -> bool:
    """Return whether the result is a handler's JSON value, not a provider's completion."""
    return codec in _VALUES


def has_json(codec: int) -> bool:
    """Return whether the text of a completion is JSON, whatever the task's line says."""
    return codec in WITH_JSON.values()


def with_json(codec: int) -> int:
    """Return the encoding of the same result, if the text of a completion is known to be JSON."""
    return WITH_JSON.get(codec, codec)


def plain(codec: int) -> int:
    """Return the encoding of the same result without compression."""
    return _PLAIN.get(codec, codec)
