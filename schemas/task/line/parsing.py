"""A task line: a person writes it, a record's value carries it, the agent reads it again.

There are two formats, and a line's fields show which one it has: docllm's own, and the input file
of the OpenAI batch API. `parse` is a pure function of the bytes, so the agent reads exactly what
the load accepted. It reads no file and knows no configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from docllm.schemas.task.line import field_checks
from docllm.schemas.task.line.field_checks import CheckField
from docllm.schemas.task.line.strict_json import (
    LineError,
    read_object,
    reading,
    refuse_many,
    refuse_rounded,
)
from docllm.schemas.task.record.envelope import MAX_TASK_BYTES
from docllm.schemas.task.record.lanes import DEFAULT_PRIORITY
from docllm.schemas.task.task_types import DOCUMENT, OPENAI
from docllm.schemas.text.placeholder import PLACEHOLDER, with_places
from docllm.schemas.text.wording import did_you_mean

__all__ = [
    "BOM",
    "MAX_PROMPT_CHARS",
    "PLACEHOLDER",
    "LineError",
    "TaskLine",
    "parse",
    "parse_again",
    "prompt_chars",
]

DEFAULT_TENANT = "default"
BOM = b"\xef\xbb\xbf"
MAX_PROMPT_CHARS = 40_000_000  # enough for one document of 32 MiB
_CHAT = "/chat/completions"  # with or without a version, a deployment or a query
_SENT = ("params", "schema", "body")  # parts that are encoded anew and sent to the provider


@dataclass(slots=True)
class TaskLine:
    """One task as it was written. Nobody changes it, but a frozen one would cost thrice as much.

    In format docllm, `prompt` is set, and one of `text` and `uri` if there is an input. In format
    openai, `body` is the whole request. `not_before` and `deadline` are UTC; `size` is in bytes;
    `source` says of what document a text was made.
    `priority` chooses the lane. `routes_allowed` bounds the routes of the task. Its result goes
    below `output_uri`, or to that object (`output_raw`: without a wrapper). An attempt has
    `time_limit_s` seconds, if its type allows them. None means that the line does not set the
    field; `given` names the fields with a default that it does set.
    """

    key: str
    format: Literal["docllm", "openai"]
    type: str = DOCUMENT
    tenant: str = DEFAULT_TENANT
    model: str | None = None
    route: str | None = None
    routes_allowed: tuple[str, ...] | None = None
    output_uri: str | None = None
    output_raw: bool = False
    prompt: str | None = None
    text: str | None = None
    uri: str | None = None
    size: int | None = None
    sha256: str | None = None
    etag: str | None = None
    source: dict[str, Any] | None = None
    params: dict[str, Any] = field(default_factory=dict)
    schema: dict[str, Any] | None = None
    body: dict[str, Any] | None = None
    priority: int = DEFAULT_PRIORITY
    not_before: datetime | None = None
    deadline: datetime | None = None
    max_attempts: int | None = None
    time_limit_s: float | None = None
    metadata: dict[str, Any] | None = None
    given: frozenset[str] = field(default=frozenset(), compare=False)


def parse(value: bytes) -> TaskLine:
    """Return the task of a line's bytes, given without line end and byte order mark.

    Raises LineError if the line is no task.
    """
    return _task(value, _DOCLLM, is_accepted=False)


def parse_again(value: bytes) -> TaskLine:
    """Return the task of a line that was accepted before.

    Its size, its schema and whether its document is blank are not checked again. Fields that only a
    newer version knows are left out.
    """
    return _task(value, _ACCEPTED, is_accepted=True)


def _task(value: bytes, checks: Mapping[str, CheckField], *, is_accepted: bool) -> TaskLine:
    with reading(memory=False):
        if len(value) > MAX_TASK_BYTES:
            raise too_large(len(value), value)
        line = read_object(value)
        if not is_accepted:
            refuse_many(line, value)
        is_openai = "custom_id" in line or "body" in line
        if is_accepted:
            known = _OPENAI if is_openai else checks
            line = {name: field for name, field in line.items() if name in known}
        task = _openai(line) if is_openai else _docllm(line, checks)
        for name in _SENT:
            if name in line:
                refuse_rounded(line, name, value)
        return task


def prompt_chars(prompt: str, document: str) -> int:
    """Return the length in characters of a prompt with its document in each placeholder."""
    return len(prompt) + prompt.count(PLACEHOLDER) * (len(document) - len(PLACEHOLDER))


def too_large(size_bytes: int, beginning: bytes) -> LineError:
    """Return the error for a line that is larger than a record may be.

    `beginning` is as much of the line as was read.
    """
    is_openai = b'"custom_id"' in beginning or b'"messages"' in beginning
    fix = (
        "instead of an image's or a file's bytes write the URL at which the provider reads it, "
        'such as {"image_url": {"url": "https://..."}}, or make the image smaller'
        if is_openai
        else "for a large document write input.uri instead of input.text"
    )
    return LineError(
        "", f"is {size_bytes} bytes long", f"use at most {MAX_TASK_BYTES} bytes a line; {fix}"
    )


def _docllm(line: dict[str, Any], checks: Mapping[str, CheckField]) -> TaskLine:
    fields = _checked(line, checks)
    if "id" not in fields:
        raise LineError(
            "id",
            "is missing",
            'give each task an id of its own, for example "id": "report-2024.txt"',
        )
    if "{{" in fields.get("prompt", ""):
        fields["prompt"] = with_places(fields["prompt"])
    source: dict[str, Any] = fields.pop("input", {})
    _check_prompt(fields, with_input=bool(source))
    _check_prompt_chars(fields.get("prompt", ""), source.get("text", ""))
    _check_times(fields)
    _check_raw(fields)
    given = frozenset(fields) & {"tenant", "priority"}
    return TaskLine(key=fields.pop("id"), format="docllm", given=given, **fields, **source)


def _check_prompt(fields: dict[str, Any], *, with_input: bool) -> None:
    """Refuse a document that the prompt does not use, and a placeholder without a document.

    Such a mistake would usually affect, and be paid for in, every task of a batch.
    """
    prompt = fields.get("prompt")
    if prompt is None and fields.get("type", DOCUMENT) == DOCUMENT:
        raise LineError(
            "prompt", "is missing", f"say what to do, for example Summarize: {PLACEHOLDER}"
        )
    if prompt is None:
        return
    if with_input and PLACEHOLDER not in prompt:
        raise LineError(
            "prompt",
            f"has no {PLACEHOLDER}",
            f"write {PLACEHOLDER} where the input's text belongs, or leave out input",
        )
    if not with_input and PLACEHOLDER in prompt:
        fix = (
            "add input.text or input.uri; if the prompt needs the word itself, put the prompt into "
            f"input.text and write {PLACEHOLDER} as the prompt"
        )
        raise LineError("input", f"is missing, but the prompt has {PLACEHOLDER}", fix)


def _check_times(fields: Mapping[str, Any]) -> None:
    """Refuse a task that may never begin."""
    begin, end = fields.get("not_before"), fields.get("deadline")
    if begin is not None and end is not None and begin >= end:
        raise LineError(
            "not_before", "is not before the deadline", "write an earlier time, or a later deadline"
        )


def _check_raw(fields: Mapping[str, Any]) -> None:
    """Refuse bytes of an answer for a folder, whose objects must say whose they are."""
    if fields.get("output_raw") and not is_exact(fields.get("output_uri")):
        raise LineError(
            "output_raw",
            "needs an object of its own",
            "write an output_uri without a slash at its end",
        )


def is_exact(output_uri: str | None) -> bool:
    """Return whether an output names the object itself, not a folder."""
    return bool(output_uri) and not str(output_uri).endswith("/")


def _check_prompt_chars(prompt: str, document: str) -> None:
    """Refuse a prompt that is too long with its document.

    A placeholder that occurs many times can make a small line larger than the memory.
    """
    if (chars := prompt_chars(prompt, document)) > MAX_PROMPT_CHARS:
        fix = (
            f"write {PLACEHOLDER} less often, or shorten the input; "
            f"at most {MAX_PROMPT_CHARS} characters are sent"
        )
        raise LineError("prompt", f"has {chars} characters with its document", fix)


def _openai(line: dict[str, Any]) -> TaskLine:
    fields = _checked(line, _OPENAI)
    name_of_id = "key" if "key" in fields else "custom_id"
    for name in (name_of_id, "body"):
        if name not in fields:
            raise LineError(
                name,
                "is missing",
                "a line of the OpenAI batch format has custom_id, method, url and body",
            )
    if len(fields.keys() & {"key", "custom_id"}) > 1:
        raise LineError("key", "is a second id", "keep custom_id alone")
    body = fields["body"]
    return TaskLine(
        key=fields[name_of_id],
        format="openai",
        type=OPENAI,
        model=body.get("model"),
        body=body,
        time_limit_s=fields.get("time_limit_s"),
        metadata=fields.get("metadata"),
    )


def _checked(line: dict[str, Any], checks: Mapping[str, CheckField]) -> dict[str, Any]:
    fields = {}
    for name, value in line.items():
        check = checks.get(name)
        if check is None:
            raise _unknown(name, checks)
        fields[name] = check(name, value)
    return fields


def _unknown(name: str, checks: Mapping[str, CheckField]) -> LineError:
    known = f"known are: {', '.join(checks)}; put your own fields into metadata"
    return LineError(name[:100], "is not a known field", did_you_mean(name, checks, known))


def _method(name: str, value: Any) -> None:
    if value != "POST":
        raise LineError(name, "is not POST", 'write "method": "POST"')


def _url(name: str, value: Any) -> None:
    if type(value) is not str or not value.partition("?")[0].removesuffix("/").endswith(_CHAT):
        raise LineError(
            name,
            f"is not /v1{_CHAT}",
            f"only chat completions are supported; write /v1{_CHAT}, with a matching body",
        )


def _or_null(check: CheckField) -> CheckField:
    """Return a check that takes null as what is left out, as OpenAI's clients write it."""
    return lambda name, value: None if value is None else check(name, value)


def _body(name: str, value: Any) -> dict[str, Any]:
    body = field_checks.json_object(name, value)
    if body.get("model") is not None:
        field_checks.model(f"{name}.model", body["model"])
    stream = body.get("stream")
    if stream is not None and stream is not False:
        raise LineError(
            f"{name}.stream", "asks for a stream", "leave it out: docllm reads whole answers"
        )
    messages = body.get("messages")
    if type(messages) is not list or {type(message) for message in messages} != {dict}:
        raise LineError(
            f"{name}.messages",
            "is not a list of messages",
            'write [{"role": "user", "content": "..."}]',
        )
    return body


_TIME_LIMIT = field_checks.real(0.1, 86_400)
_DOCLLM: dict[str, CheckField] = {
    "id": field_checks.key,
    "type": field_checks.name,
    "prompt": field_checks.text,
    "input": field_checks.source,
    "model": field_checks.model,
    "route": field_checks.route,
    "routes_allowed": field_checks.routes,
    "output_uri": field_checks.output_uri,
    "output_raw": field_checks.truth,
    "params": field_checks.params,
    "schema": field_checks.answer_schema,
    "tenant": field_checks.name,
    "priority": field_checks.whole(0, 9),
    "not_before": field_checks.instant,
    "deadline": field_checks.instant,
    "max_attempts": field_checks.whole(1, 100),
    "time_limit_s": _TIME_LIMIT,
    "metadata": field_checks.json_object,
}
_ACCEPTED = _DOCLLM | {
    "schema": field_checks.json_object,
    "input": field_checks.accepted_source,
}
_OPENAI: dict[str, CheckField] = {
    "custom_id": field_checks.key,
    "key": field_checks.key,
    "method": _or_null(_method),
    "url": _or_null(_url),
    "body": _body,
    "time_limit_s": _or_null(_TIME_LIMIT),
    "metadata": _or_null(field_checks.json_object),
}
