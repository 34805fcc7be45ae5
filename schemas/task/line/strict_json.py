"""Strict JSON for one task line: refuses what orjson would silently accept.

A name that occurs twice in an object is an error, because one reader would take its last value and
another its first. This module knows nothing of the fields of a line.
"""

import json
from collections.abc import Iterator
from typing import Any

import orjson

from docllm.schemas.text.untrusted import describe_error, is_interrupt

# orjson writes 254 levels of brackets, and the agent encodes parts of a line again.
MAX_DEPTH = 250
MAX_VALUES = 200_000
NOT_UTF8 = "is not UTF-8"
NOT_JSON = "is not JSON"
_SHOWN_CHARS = 500
# The range that orjson reads and writes; a number beyond it becomes a float.
_WHOLE = range(-(2**63), 2**64)
_WHOLE_CHARS = 20
_BEYOND = object()


class LineError(ValueError):
    """A line that is no task: the field at fault, what is wrong, and what to do.

    An empty field means the whole line. All three texts may quote the line, and go to logs and
    terminals, so characters that are not printable are written as escapes.
    """

    def __init__(self, field: str, error: str, fix: str) -> None:
        field, error, fix = _shown(field), _shown(error), _shown(fix)
        super().__init__(f"{field}: {error}; {fix}" if field else f"{error}; {fix}")
        self.field = field
        self.error = error
        self.fix = fix

    def __reduce__(self) -> tuple[type["LineError"], tuple[str, str, str]]:
        """Return how another process recreates this error."""
        return LineError, (self.field, self.error, self.fix)


class _ParseGuard:
    """The guard of `reading`."""

    def __init__(self, *, memory: bool) -> None:
        self._memory = memory

    def __enter__(self) -> None:
        """Let the body run."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        """Turn the raised error into a LineError."""
        if error is None or isinstance(error, LineError) or is_interrupt(error):
            return
        if self._memory or not isinstance(error, MemoryError):
            fix = "correct the line; if it is correct, report a bug of docllm with this text"
            raise LineError("", f"cannot be read: {describe_error(error)}", fix) from error


_READING = {memory: _ParseGuard(memory=memory) for memory in (True, False)}


def reading(*, memory: bool) -> _ParseGuard:
    """Turn whatever the body raises over a line into a LineError.

    A MemoryError, which may not be the line's fault, becomes one only with `memory`.
    """
    return _READING[memory]


def _shown(text: str) -> str:
    cut = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
    if cut.isprintable():
        return cut
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in cut)


def read_object(value: bytes) -> dict[str, Any]:
    """Return the JSON object in `value`.

    Raises LineError for anything else, including duplicate names at any depth.
    """
    try:
        line = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise _not_json(value, error) from None
    if type(line) is not dict:
        raise LineError(
            "",
            "is not a JSON object",
            'write one object on each line, for example {"id": "a", "prompt": "Say hello"}',
        )
    _refuse_duplicates(line, value)
    return line


def _not_json(value: bytes, error: orjson.JSONDecodeError) -> LineError:
    try:
        value.decode()
    except UnicodeDecodeError as decode_error:
        return LineError(
            "", f"{NOT_UTF8} at byte {decode_error.start + 1}", "save the file as UTF-8"
        )
    if "depth" in error.msg:
        return _too_deep()
    return LineError(
        "",
        f"{NOT_JSON}: {error.msg} at column {error.colno}",
        "write one whole JSON object on each line",
    )


def _too_deep() -> LineError:
    return LineError(
        "",
        f"has more than {MAX_DEPTH} levels of brackets",
        "make it flatter, or pass the inner part as text",
    )


def _refuse_duplicates(line: dict[str, Any], value: bytes) -> None:
    """Refuse duplicate names: compare the colons of the text with those of the parsed object.

    The parsed object is encoded again for this. Every pair has one colon, and strings may contain
    further colons. So if the parser dropped a pair, the text has more colons than the parsed
    object. The count is exact unless a colon is escaped; lines with escaped colons are checked by
    the slow method.
    """
    has_escapes = b"\\" in value and b"\\u003" in value  # the first is found much faster
    if value.count(b":") != _write(line).count(b":") or has_escapes:
        try:
            json.loads(value, object_pairs_hook=_unique)
        except RecursionError:  # the part that is too deep was in a pair that orjson dropped
            raise _too_deep() from None


def refuse_many(line: dict[str, Any], value: bytes) -> None:
    """Raise LineError if a line has more values than an agent can read without a standstill."""
    if len(value) < MAX_VALUES:
        return
    may_have_many = value.count(b",") + value.count(b"[") >= MAX_VALUES
    if may_have_many and values_in(line, MAX_VALUES) > MAX_VALUES:
        raise LineError(
            "",
            f"holds more than {MAX_VALUES} JSON values",
            "pass the large part as text, or as a document by input.uri",
        )


def refuse_rounded(line: dict[str, Any], field: str, value: bytes) -> None:
    """Raise LineError if a whole number in an object of the line was rounded when it was read.

    `field` is the name of the object in the line of `value`.
    """
    if any(type(leaf) is float and abs(leaf) >= -_WHOLE.start for leaf in _leaves(line.get(field))):
        for name, inner in json.loads(value, parse_int=_exact)[field].items():
            if any(leaf is _BEYOND for leaf in _leaves(inner)):
                fix = (
                    "write a smaller one, or one with an exponent, such as 1e20, "
                    "where its last digits do not matter"
                )
                raise LineError(f"{field}.{name[:100]}", "has a whole number beyond 64 bits", fix)


def _exact(digits: str) -> Any:
    return int(digits) if len(digits) <= _WHOLE_CHARS and int(digits) in _WHOLE else _BEYOND


def values_in(value: Any, most: int) -> int:
    """Return how many JSON values a value contains, including itself; stop above `most`."""
    count, unvisited = 0, [value]
    while unvisited and count <= most:
        node = unvisited.pop()
        count += 1
        if isinstance(node, dict):
            unvisited.extend(node.values())
        elif isinstance(node, list):
            unvisited.extend(node)
    return count


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the values inside a value that contain no other values."""
    unvisited = [value]
    while unvisited:
        node = unvisited.pop()
        if type(node) is dict:
            unvisited.extend(node.values())
        elif type(node) is list:
            unvisited.extend(node)
        else:
            yield node


def _write(line: dict[str, Any]) -> bytes:
    try:
        # Encoded within as many levels as the agent's request adds around a part of the line.
        return orjson.dumps([[[[line]]]])
    except orjson.JSONEncodeError:
        raise _too_deep() from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise LineError(name[:100], "occurs twice in one object", "keep one of the two")
        values[name] = value
    return values
