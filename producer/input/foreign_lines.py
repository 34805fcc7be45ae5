"""Names the form of lines that were refused: JSON objects of other programs, or no JSON at all.

Only lines that are no tasks are looked at.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from docllm.producer.input.foreign_texts import OURS, ForeignForm, form_of_text

_KNOWN = frozenset({"id", "prompt", "custom_id", "body", "key"})
_SHOWN = 5  # names of fields
_SHOWN_CHARS = 40  # of each


def foreign_form(text: str, field: str) -> ForeignForm | None:
    """Return the form of a line that was refused; None if the refusal says enough.

    `field` is the field that was refused.
    """
    try:
        line = orjson.loads(text)
    except orjson.JSONDecodeError:
        line = None
    return _of_object(line, field) if isinstance(line, dict) else form_of_text(text)


def _of_object(line: Mapping[str, Any], field: str) -> ForeignForm | None:
    inner = line.get("request", line.get("body"))
    request: Mapping[str, Any] = inner if isinstance(inner, dict) else {}
    if "prompt" in line and "output" not in line:  # a line of ours, with a mistake
        return None
    found = next((form for test, form in _OBJECTS if test(line, request)), None)
    if found is not None:
        return found
    if field == "url":
        url = str(line["url"])[:_SHOWN_CHARS]
        return ForeignForm(
            f"asks for {url!r}, and only chat completions are supported",
            "write /v1/chat/completions, with a matching body",
            field,
        )
    if line and not _KNOWN & line.keys():
        names = ", ".join(name[:_SHOWN_CHARS] for name in list(line)[:_SHOWN])
        return ForeignForm(f"has no field of a task line, but {names}", OURS)
    return None


_Test = Callable[[Mapping[str, Any], Mapping[str, Any]], object]
_RESULTS = frozenset({"response", "result", "choices", "modelOutput", "batch_result"})
_OBJECTS: tuple[tuple[_Test, ForeignForm], ...] = (
    (
        lambda line, _: {"id", "status", "result", "attempts"} <= line.keys(),
        ForeignForm(
            "is a result that docllm exported",
            "load the input of that batch; to run its dead tasks again: docllm replay",
        ),
    ),
    (
        lambda line, _: {"line", "field", "error", "fix", "text"} <= line.keys(),
        ForeignForm(
            "is a rejected line with further fields",
            "repair text, and leave the fields as they are",
        ),
    ),
    (
        lambda line, _: _RESULTS & line.keys() or line.get("object") in {"batch", "response"},
        ForeignForm("is a result of a batch or chat API", "load the input of that batch"),
    ),
    (
        lambda line, _: "custom_id" in line and "params" in line,
        ForeignForm(
            "is a line of Anthropic's Message Batches (custom_id, params)",
            f"{OURS}; Anthropic's OpenAI-compatible API answers both",
        ),
    ),
    (
        lambda _, request: "anthropic_version" in request,
        ForeignForm("is a line of Claude's batches at Vertex AI (anthropic_version)", OURS),
    ),
    (
        lambda line, request: "contents" in line or "contents" in request,
        ForeignForm("is a line of Gemini's or Vertex AI's batches (contents)", OURS),
    ),
    (
        lambda line, _: "modelInput" in line,
        ForeignForm("is a line of Amazon Bedrock's batches (modelInput)", OURS),
    ),
    (
        lambda line, _: "batch_request" in line,
        ForeignForm("is a line of xAI's batches (batch_request)", OURS),
    ),
    (
        lambda line, request: "request" in line and "messages" in request,
        ForeignForm("has its request in request, not in body", "rename the field request to body"),
    ),
    (
        lambda line, _: "messages" in line,
        ForeignForm(
            "has messages, but not in a body",
            'write {"custom_id": "1", "body": {"messages": [...]}}, each with an id of its own',
        ),
    ),
    (
        lambda line, request: (
            "url" not in line and "messages" not in request and {"input", "prompt"} & request.keys()
        ),
        ForeignForm(
            "is a request of another API than chat completions: its body has input or prompt",
            'write "messages": [{"role": "user", "content": "..."}] into the body',
        ),
    ),
)
