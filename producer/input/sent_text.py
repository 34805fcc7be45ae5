"""How many bytes of text the request of a task has: what a provider counts as input.

Field names, brackets and parameters are no input. Tools and schemas are: providers put their JSON
before the messages.
"""

import json
from collections.abc import Iterator
from typing import Any

from docllm.schemas.settings.config import BYTES_PER_TOKEN
from docllm.schemas.task.line.parsing import TaskLine

# What OpenAI counts for an image of 1024 x 1024 pixels, and with `"detail": "low"`.
_IMAGE_TOKENS, _LOW_IMAGE_TOKENS = 765, 85


def sent_bytes(task: TaskLine) -> int:
    """Return the bytes of a task's texts, without those of a document that it names by URI."""
    if task.body is not None:
        return sum(_of_body(task.body))
    texts = (task.prompt, task.text)
    return sum(map(_of_part, texts)) + _of_json(task.schema)


def _of_body(body: dict[str, Any]) -> Iterator[int]:
    yield _of_json(body.get("tools"))
    form = body.get("response_format")
    yield _of_json(form.get("json_schema") if isinstance(form, dict) else None)
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict):
            content = message.get("content")
            for part in content if isinstance(content, list) else (content,):
                yield _of_part(part)
            yield _of_json(message.get("tool_calls"))


def _of_part(part: Any) -> int:
    if isinstance(part, str):
        return len(part if part.isascii() else part.encode("utf-8", "replace"))
    if not isinstance(part, dict):
        return 0
    if "image_url" in part:
        image = part["image_url"]
        is_low = isinstance(image, dict) and image.get("detail") == "low"
        return (_LOW_IMAGE_TOKENS if is_low else _IMAGE_TOKENS) * BYTES_PER_TOKEN
    return _of_part(text) if isinstance(text := part.get("text"), str) else 0


def _of_json(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False)) if value else 0
