"""The encodings of a stored result.

A result is a provider's answer as it was sent, or a JSON value that a handler returned; each may be
compressed.
"""

import zlib

# As stored in `task_result.codec`.
COMPLETION = 0
COMPLETION_ZLIB = 1
VALUE = 2
VALUE_ZLIB = 3
_PACKED = (COMPLETION_ZLIB, VALUE_ZLIB)
_VALUES = (VALUE, VALUE_ZLIB)


def unpacked(codec: int, body: bytes) -> bytes:
    """Return a stored result as JSON bytes."""
    return zlib.decompress(body) if codec in _PACKED else body


def is_value(codec: int) -> bool:
    """Return whether the result is a handler's JSON value, not a provider's completion."""
    return codec in _VALUES
