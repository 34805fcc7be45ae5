"""Names the lines of other programs, and files that have no lines of JSON.

Only texts that are no tasks are looked at.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from docllm.schemas.task.line.strict_json import LineError

_OURS = (
    "write docllm's lines, with id and prompt, or OpenAI's, with custom_id and a body that has "
    "messages"
)
_HEAD_CHARS = 200
_PYTHON = re.compile(r"\{\s*+'")
_KNOWN = frozenset({"id", "prompt", "custom_id", "body", "key"})
_SHOWN = 5  # names of fields
_SHOWN_CHARS = 40  # of each


@dataclass(frozen=True, slots=True)
class ForeignForm:
    """A form of lines that is not read: what it is, and what to do.

    If `alone`, a file that begins with it has no lines at all.
    """

    error: str
    fix: str
    field: str = ""
    alone: bool = False

    def error_of(self, more: str = "") -> LineError:
        """Return the error of a line of this form; `more` says what holds for other lines."""
        return LineError(self.field, f"{self.error}, {more}" if more else self.error, self.fix)


def foreign_form(text: str, field: str) -> ForeignForm | None:
    """Return the form of a line that was refused; None if the refusal says enough.

    `field` is the field that was refused.
    """
    try:
        line = orjson.loads(text)
    except orjson.JSONDecodeError:
        line = None
    if isinstance(line, dict):
        return _of_object(line, field)
    head = text[:_HEAD_CHARS].strip().lower()
    return next((form for test, form in _TEXTS if test(head)), None)


def _of_object(line: Mapping[str, Any], field: str) -> ForeignForm | None:
    request = line.get("request")
    inner: Mapping[str, Any] = request if isinstance(request, dict) else {}
    if "prompt" in line:  # a line of ours, with a mistake
        return None
    found = next((form for test, form in _OBJECTS if test(line, inner)), None)
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
        return ForeignForm(f"has no field of a task line, but {names}", _OURS)
    return None


_OBJECTS: tuple[tuple[Callable[[Mapping[str, Any], Mapping[str, Any]], bool], ForeignForm], ...] = (
    (
        lambda line, _: "custom_id" in line and "params" in line,
        ForeignForm(
            "is a line of Anthropic's Message Batches (custom_id, params)",
            f"{_OURS}; Anthropic's OpenAI-compatible API answers both",
        ),
    ),
    (
        lambda line, request: "contents" in line or "contents" in request,
        ForeignForm("is a line of Gemini's or Vertex AI's batches (contents)", _OURS),
    ),
    (
        lambda line, _: "modelInput" in line,
        ForeignForm("is a line of Amazon Bedrock's batches (modelInput)", _OURS),
    ),
    (
        lambda line, _: "custom_id" in line and ("response" in line or "result" in line),
        ForeignForm("is a line of a batch API's results", "load the input of that batch"),
    ),
    (
        lambda _, request: "messages" in request,
        ForeignForm("has its request in request, not in body", "rename the field request to body"),
    ),
    (
        lambda line, _: "messages" in line,
        ForeignForm(
            "has messages, but not in a body",
            'write {"custom_id": "1", "body": {"messages": [...]}}, each with an id of its own',
        ),
    ),
)
_TEXTS: tuple[tuple[Callable[[str], object], ForeignForm], ...] = (
    (
        lambda head: head.startswith("["),
        ForeignForm(
            "begins a JSON array, not a line of JSON",
            "put each of its objects on one line: jq -c '.[]' FILE | docllm load -",
            alone=True,
        ),
    ),
    (
        lambda head: head == "{",
        ForeignForm(
            "is a JSON object over several lines",
            "put each object on one line: jq -c . FILE | docllm load -",
            alone=True,
        ),
    ),
    (
        lambda head: head.startswith(("<!doctype", "<html", "<?xml", "<error")),
        ForeignForm(
            "begins a page of HTML or XML, perhaps an error of the server that it came from",
            "get the file again, or load documents with --documents",
            alone=True,
        ),
    ),
    (
        lambda head: head.startswith("version https://git-lfs"),
        ForeignForm("is a pointer of Git LFS, not the file", "get it: git lfs pull", alone=True),
    ),
    (
        _PYTHON.match,
        ForeignForm("is written by Python's repr, not as JSON", "write json.dumps(task)"),
    ),
    (
        lambda head: head and not head.startswith("{"),
        ForeignForm(
            "is text, such as a row of a table (CSV), not JSON",
            "write one object with id and prompt on each line, as pandas does: "
            "df.to_json(FILE, orient='records', lines=True)",
        ),
    ),
)
