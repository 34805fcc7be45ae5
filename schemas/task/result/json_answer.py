"""The JSON of an answer, which every reader of answers takes through `json_answer`."""

from typing import Any, NamedTuple

import orjson

from docllm.schemas.task.result.mending import read_json
from docllm.schemas.task.result.message_text import is_empty, text_of, thoughts_of
from docllm.schemas.task.result.wrapping import unwrapped


class JsonAnswer(NamedTuple):
    """The JSON of an answer: its text, its value, what was mended; `was_wrapped` in a fence."""

    text: bytes
    value: Any
    mended: tuple[str, ...] = ()
    was_wrapped: bool = False


def json_answer(message: dict[str, Any], *, strict: bool = False) -> JsonAnswer:
    """Return the JSON in a message's text, or a content that is JSON itself.

    Unless `strict`, fences and thoughts around it are taken off, and what a person can read is
    mended. If the content is empty, the answer may be in the field of the thoughts. Raises
    JSONDecodeError, and JSONEncodeError for a content that is nested too deeply.
    """
    content = text_of(message.get("content"))
    if is_empty(content):
        content = "" if strict else thoughts_of(message)[1]
    if not isinstance(content, str):
        return JsonAnswer(orjson.dumps(content), content)
    text = content.encode()
    try:
        return JsonAnswer(text, orjson.loads(text))
    except orjson.JSONDecodeError:
        if strict:
            raise
    return _unwrapped(content)


def _unwrapped(content: str) -> JsonAnswer:
    candidates = list(unwrapped(content))
    for candidate in candidates:
        try:
            answer = read_json(candidate.encode())
        except orjson.JSONDecodeError:
            continue
        return JsonAnswer(*answer, was_wrapped=candidate != content.strip())
    value = orjson.loads(candidates[0])  # raises what is wrong with the likeliest
    return JsonAnswer(candidates[0].encode(), value)
