"""The answer to a task, taken from its stored result.

The answer is the message's text, its JSON, or a handler's value.
"""

import zlib
from typing import Any, NamedTuple

import orjson

from docllm.schemas.task.result.codec import has_json, has_thoughts, is_value, unpacked
from docllm.schemas.task.result.json_answer import json_answer, read_json
from docllm.schemas.task.result.message_text import refusal_of, text_of
from docllm.schemas.task.result.wrapping import without_thoughts

SAID_CHARS = 2000
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


def answer_value(line: bytes, codec: int, stored: bytes) -> Any:
    """Return the answer to a task's line as the value that an export writes."""
    return orjson.loads(orjson.dumps(read_result(line, codec, stored).answer))


class ResultRead(NamedTuple):
    """The answer in a stored result, and what had to be mended so that it can be read."""

    answer: Any
    mended: tuple[str, ...] = ()


def read_result(line: bytes, codec: int, stored: bytes) -> ResultRead:
    """Return the answer to a task's line, as a value or a fragment that orjson writes.

    The answer is JSON if the task or its type has a schema. If no answer is found in the stored
    result, the result is returned as text.
    """
    body = stored_json(codec, stored)
    if is_value(codec):
        return ResultRead(as_written(body))
    try:
        completion = read_json(body)
        message, mended = _message(completion.value), completion.mended
        content = text_of(message.get("content"))
        if content is not None and not isinstance(content, str):
            return ResultRead(orjson.Fragment(orjson.dumps(content)), mended)
        if has_thoughts(codec) and content is not None:
            content = without_thoughts(content)
        if has_json(codec) or has_schema(line):
            try:
                answer = json_answer(message)
            except orjson.JSONDecodeError:
                # A handler that called the LLM without the schema may answer with text.
                return ResultRead(content, mended)
            text = orjson.Fragment(answer.text.translate(_ONE_LINE))
            return ResultRead(text, tuple(dict.fromkeys(mended + answer.mended)))
        return ResultRead(content, mended)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return ResultRead(readable(body))


def text_of_answer(body: bytes, codec: int) -> str:
    """Return the text of a completion, as a handler gets it; empty if it has none."""
    message = _message(read_json(body).value)
    if has_json(codec):
        return json_answer(message).text.decode()
    content = text_of(message.get("content"))
    if not isinstance(content, str):
        return ""
    return without_thoughts(content) if has_thoughts(codec) else content


def said(body: bytes) -> str:
    """Return the beginning of what a model answered: its message's text, else the body."""
    try:
        message = _message(read_json(body).value)
    except orjson.JSONDecodeError:
        message = {}
    for text in (text_of(message.get("content")), refusal_of(message)):
        if isinstance(text, str) and text.strip():
            return text[:SAID_CHARS]
    return beginning(body)


def beginning(body: bytes) -> str:
    """Return the first characters of a body that is not to be parsed."""
    return readable(body[: 4 * SAID_CHARS])[:SAID_CHARS]


def strict_json(body: bytes) -> bytes:
    """Return a completion that strict readers can read, or else the body as it is."""
    try:
        return read_json(body).text
    except orjson.JSONDecodeError:
        return body


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


def _message(completion: Any) -> dict[str, Any]:
    match completion:
        case {"choices": [{"message": dict() as message}, *_]}:
            return message
    return {}


def has_schema(line: bytes) -> bool:
    """Return whether a task's line has a schema."""
    return b'"schema"' in line and "schema" in orjson.loads(line)
