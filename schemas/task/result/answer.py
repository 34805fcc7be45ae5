"""The answer to a task, taken from its stored result.

The answer is the message's text, its JSON, or a handler's value.

Tested by tests/unit/producer/ledger/results/test_result_lines.py.
"""

import zlib
from typing import Any

import orjson

from schemas.task.result.codec import has_json, is_value, unpacked
from schemas.task.result.message_text import text_of

_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


def answer_value(line: bytes, codec: int, stored: bytes) -> Any:
    """Return the answer to a task's line as the value that an export writes."""
    return orjson.loads(orjson.dumps(answer_of(line, codec, stored)))


def answer_of(line: bytes, codec: int, stored: bytes) -> Any:
    """Return the answer to a task's line, as a value or a fragment that orjson writes.

    The answer is JSON if the task or its type has a schema. If no answer is found in the stored
    result, the result is returned as text.
    """
    body = stored_json(codec, stored)
    if is_value(codec):
        return as_written(body)
    try:
        content = _content(orjson.loads(body))
        # A handler that called the LLM without the schema may answer with text.
        if isinstance(content, str):
            is_json = has_json(codec) or has_schema(line)
            return as_written(content.encode()) if is_json else content
        return orjson.Fragment(orjson.dumps(content))
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return readable(body)


def stored_json(codec: int, stored: bytes) -> bytes:
    """Return the stored JSON.

    Damaged bytes are returned as they are, because one row must not keep the others from being
    exported.
    """
    try:
        return unpacked(codec, stored)
    except zlib.error:
        return stored


def as_written(text: bytes) -> Any:
    """Return JSON as it was written, whatever its depth and its numbers, on one line.

    Line breaks become blanks. Text that is not JSON is returned as a string.
    """
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return readable(text)
    return orjson.Fragment(text.translate(_ONE_LINE))


def readable(raw: bytes) -> str:
    """Return bytes as text; those that are not UTF-8 are escaped."""
    return raw.decode(errors="backslashreplace")


def _content(completion: Any) -> Any:
    match completion:
        case {"choices": [{"message": {"content": content}}, *_]}:
            return text_of(content)
    return None


def has_schema(line: bytes) -> bool:
    """Return whether a task's line has a schema."""
    return b'"schema"' in line and "schema" in orjson.loads(line)
