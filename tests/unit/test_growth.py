"""Whatever strangers write is read in time in proportion to its length.

A reader that takes the square of it stops the whole program for one long text of blanks, quotes or
brackets. Each reader here is given such texts, of n and of 4n characters.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import orjson
import pytest

from docllm.agent.documents.address import address_of
from docllm.agent.documents.conversion.by_content import _kind_and_text
from docllm.agent.documents.errors import shown_uri
from docllm.agent.handlers.builtin.parts import split
from docllm.agent.judge import judge
from docllm.agent.judge.judgement import classified
from docllm.agent.judge.snooze_delay import asked_for
from docllm.agent.ports import Reply
from docllm.agent.quota.provider_headers import left, share_left
from docllm.producer.input.excluded_files import is_hidden, is_own
from docllm.producer.input.lines import batch_name, read_line
from docllm.producer.ledger.results.result_lines import Letter, _refusal
from docllm.producer.text.printable import (
    JsonFormatter,
    ShownFormatter,
    escaped,
    shown,
    shown_lines,
)
from docllm.schemas.documents.encoding import page_text
from docllm.schemas.objects.address import ObjectAddress
from docllm.schemas.objects.errors import ObjectError
from docllm.schemas.objects.write_once import safe_name
from docllm.schemas.refusals.signals import of_success
from docllm.schemas.runtime.next_command import with_config
from docllm.schemas.task.allowed_uris import require_prefix, uri_parts
from docllm.schemas.task.answer_schema.bounds import id_problem, is_soon_explained, too_much
from docllm.schemas.task.answer_schema.patterns import (
    backtracks,
    compiled_kb,
    excess_of_patterns,
    pieces,
)
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.line.strict_json import read_object
from docllm.schemas.task.provider_error import provider_error_of_packed
from docllm.schemas.task.record.envelope import decode
from docllm.schemas.task.record.trace import trace_headers
from docllm.schemas.task.result.answer import as_written
from docllm.schemas.text.document_text import DocumentText, blank_problem
from docllm.schemas.text.fingerprint import fingerprint
from docllm.schemas.text.wording import masking, one_line
from tests.support.growth import LINEAR, growth
from tests.support.replies import FACTS, completion

PIECES = [
    *"<>\"'`\\{}[]()/%.-_:;,=@#?&*+|~ \n\t\r\0\x1baA0é",
    *("\u3000", "\ufeff", "\u2028", "\U0001f600", "\u0301\u0327"),
    *("a ", " a", "a,", "a:", "a.", "a-", "a/", "a@", "#0", "0.", "0:", "0s", "1m", "-1", "&lt;"),
    *("//", "/.", "/..", "%2f", "%25", "%", "%e9", "://", "'a'", '"a"', '"a b"', "a'b", "\\'"),
    *('\\"', "\\\\", "\\u003a", "\\ud800", '{"a":', "[[", "{{", "[]", "{}", ",,", '"error": "'),
    *("'error': '", '"message": \'a b', "sk-", "sk-a", "bearer ", "bearer=", "api_key=", "token: "),
    *("python -m ", "docllm ", "<Code>", "<Code>a", '"reason": "', "non-2xx status "),
    *(
        ".toml",
        "docllm",
        ".rejects.jsonl",
        "<!---->",
        "<meta ",
        "\\p{",
        "(?i",
        "[^",
        "\x1b[",
        "...ab",
    ),
]
LONG_SECRET = "a" * 60 + "b"


def in_line(field: str) -> Callable[[str], object]:
    """Return a reader of a line that has the text in one of its fields."""

    def read(text: str) -> object:
        value: dict[str, Any] = {"id": "a", "prompt": "Say {document}", "input": {"text": "b"}}
        if field.startswith("input."):
            value["input"] = {field.removeprefix("input."): text}
        else:
            value[field] = text
        return read_line(1, orjson.dumps(value))

    return read


def schema_line(schema: dict[str, Any]) -> object:
    return read_line(1, orjson.dumps({"id": "a", "prompt": "b", "schema": schema}))


def raw(read: Callable[[bytes], object]) -> Callable[[str], object]:
    return lambda text: read(text.encode("utf-8", "surrogatepass"))


def refused(text: str) -> object:
    body = orjson.dumps({"error": {"message": text, "code": text, "metadata": {"raw": text}}})
    return classified(Reply(400, {}, body))


def answered(text: str) -> object:
    return judge(Reply(200, {}, completion(text, finish_reason=text)), FACTS)


def in_headers(text: str) -> object:
    names = ("retry-after", "retry-after-ms", "date", "x-ratelimit-reset-requests")
    limits = ("x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens")
    headers = dict.fromkeys((*names, *limits, f"x-ratelimit-{text}-reset"), text)
    return asked_for(headers, 0.0, limits=True), share_left(headers), left(headers)


def logged(formatter: logging.Formatter) -> Callable[[str], object]:
    return lambda text: formatter.format(
        logging.LogRecord("docllm", logging.INFO, "a.py", 1, "%s", (text,), None)
    )


def refusal(text: str) -> object:
    return _refusal(Letter(ErrorClass.SERVER, f"500 {text}", None))


def read_in_parts(text: str) -> object:
    document, value = DocumentText(), text.encode("utf-8", "surrogatepass")
    return [document.read(value[start : start + 100]) for start in range(0, len(value), 100)]


def object_error(text: str) -> object:
    return ObjectError.of(Exception(text), f"s3://bucket/{text}")


def header_values(text: str) -> object:
    value = text.encode("utf-8", "replace")
    names = ("traceparent", "docllm-trace-link", "docllm-trace-after", "docllm-task")
    headers = [(name, value) for name in names]
    return trace_headers(headers), decode([*headers, (text, value)])


NOW = datetime(2026, 1, 1, tzinfo=UTC)
READERS: dict[str, Callable[[str], object]] = {
    "document": raw(partial(_kind_and_text, name="a")),
    "document in UTF-16": lambda text: _kind_and_text(text.encode("utf-16", "surrogatepass"), "a"),
    "zip archive": lambda text: _kind_and_text(b"PK\x03\x04" + text.encode(), "a"),
    "page": raw(page_text),
    "document in parts": read_in_parts,
    "blank document": blank_problem,
    "parts of a long document": lambda text: split(text, part_bytes=200, overlap_bytes=50),
    "line": raw(lambda value: read_line(1, value)),
    "object": raw(lambda value: read_object(b'{"a":' + value + b"}")),
    **{f"line: {name}": in_line(name) for name in ("id", "prompt", "type", "model", "route")},
    **{
        f"line: {name}": in_line(name) for name in ("tenant", "output_uri", "deadline", "custom_id")
    },
    **{f"line: {name}": in_line(f"input.{name}") for name in ("text", "uri", "sha256", "etag")},
    "line: unknown field": lambda text: read_line(1, orjson.dumps({"id": "a", text: 1})),
    "line: pattern": lambda text: schema_line({"type": "string", "pattern": text}),
    "pattern's size": compiled_kb,
    "pattern's pieces": lambda text: (pieces(text), backtracks(text)),
    "URI": uri_parts,
    "URI of a file": lambda text: uri_parts(f"file:///{text}"),
    "URI of a page": lambda text: uri_parts(f"https://a.example/{text}"),
    "prefix": lambda text: require_prefix(f"https://{text}/"),
    "URI in an error": shown_uri,
    "object's URI": lambda text: ObjectAddress.of(f"s3://bucket/{text}"),
    "object's error": object_error,
    "safe name": safe_name,
    "address": address_of,
    "own file": lambda text: is_own(Path(text.replace("\0", "")), [Path("/data")]),
    "own file by name": lambda text: is_own(Path(f"#docllm{text}"), [Path("/data")]),
    "hidden file": lambda text: is_hidden(PurePath(text).parts),
    "batch's name": lambda text: batch_name(text, NOW),
    "refusal": refused,
    "refusal as raw text": raw(lambda body: classified(Reply(429, {}, body))),
    "refusal in a success": lambda text: of_success({"error": text}),
    "success": answered,
    "success as raw text": raw(lambda body: judge(Reply(200, {}, body), FACTS)),
    "headers": in_headers,
    "record's headers": header_values,
    "stored refusal": refusal,
    "stored answer": raw(as_written),
    "provider's error": raw(provider_error_of_packed),
    "fingerprint": lambda text: fingerprint("SERVER", text),
    "error's line": one_line,
    "masked body": raw(masking(LONG_SECRET, "secret-key", "\"\\'")),
    "shown": shown,
    "shown lines": shown_lines,
    "escaped": escaped,
    "commands in a text": lambda text: with_config(text, "docllm.toml"),
    "line of the log": logged(ShownFormatter("%(message)s", config_file="docllm.toml")),
    "object of the log": logged(JsonFormatter({})),
}


@pytest.mark.parametrize("name", READERS)
def test_what_strangers_write_is_read_in_linear_time(name: str) -> None:
    """A text of four times the length takes about four times as long, whatever it is made of."""
    for piece in PIECES:
        for end in ("", "x"):

            def made(n: int, piece: str = piece, end: str = end) -> str:
                return piece * (n // len(piece)) + end

            assert growth(READERS[name], made) <= LINEAR, (piece, end)


def wide(make: Callable[[int], Any]) -> Callable[[int], dict[str, Any]]:
    return lambda n: {"type": "object", "$defs": {f"d{i}": make(i) for i in range(n)}}


SCHEMAS: dict[str, Callable[[int], dict[str, Any]]] = {
    "ids below a long one": lambda n: {
        "$id": f"https://a.example/{'a/' * n}",
        "$defs": {f"d{i}": {"$id": f"i{i}"} for i in range(n)},
    },
    "ids": wide(lambda i: {"$id": f"https://a.example/{i}"}),
    "references to one": wide(lambda _: {"$ref": "#/$defs/d0"}),
    "references in a row": wide(lambda i: {"$ref": f"#/$defs/d{i + 1}"}),
    "long references": lambda n: {"$defs": {"a": {"$ref": f"#{'/a' * n}"}}},
    "anchors": wide(lambda i: {"$anchor": f"a{i}"}),
    "alternatives": lambda n: {"anyOf": [{"type": "string"}] * n},
    "patterns": wide(lambda i: {"pattern": f"a{i}"}),
    "choices": lambda n: {"enum": [[i] for i in range(n)]},
    "required": lambda n: {"required": [f"a{i}" for i in range(n)]},
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_bounds_of_a_schema_are_found_in_linear_time(name: str) -> None:
    """What protects from slow schemas must not itself be slow over one."""

    def bound(schema: dict[str, Any]) -> object:
        if too_much(schema):
            return None
        soon = is_soon_explained(schema, ["a"])
        return id_problem(schema), excess_of_patterns(schema), soon

    assert growth(bound, SCHEMAS[name], most=1 << 12) <= LINEAR


OBJECTS: dict[str, Callable[[int], bytes]] = {
    "names": lambda n: orjson.dumps({f"a{i}": i for i in range(n)}),
    "names that occur twice": lambda n: b'{"a":{' + b",".join([b'"a":1'] * n) + b"}}",
    "escaped colons": lambda n: b'{"a":"' + b"\\u003a" * n + b'"}',
    "objects": lambda n: b'{"a":[' + b",".join([b'{"b":1}'] * n) + b"]}",
    "large numbers": lambda n: b'{"params":{"a":[' + b",".join([b"9" * 30] * n) + b"]}}",
    "digits": lambda n: b'{"id":"a","prompt":"b","params":{"a":' + b"9" * n + b"}}",
    "exponent": lambda n: b'{"id":"a","prompt":"b","params":{"a":1e' + b"9" * n + b"}}",
    "depth": lambda n: b'{"a":' * n + b"1" + b"}" * n,
    "routes": lambda n: orjson.dumps({"id": "a", "prompt": "b", "routes": ["a"] * n}),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_the_objects_of_a_line_are_read_in_linear_time(name: str) -> None:
    """Many values, names or digits take as long each as a few."""
    assert growth(lambda value: read_line(1, value), OBJECTS[name]) <= LINEAR


REPLIES: dict[str, Callable[[int], Any]] = {
    "errors in errors": lambda n: {"error": {"details": [{"error": {}}] * n}},
    "parts": lambda n: {"choices": [{"message": {"content": [{"type": "text", "text": "a"}] * n}}]},
    "choices": lambda n: {"choices": [{"message": {"content": "a"}}] * n},
    "names": lambda n: {f"error{i}": {"code": i} for i in range(n)},
}


@pytest.mark.parametrize("status", [200, 400, 429, 500])
@pytest.mark.parametrize("name", REPLIES)
def test_the_objects_of_a_reply_are_read_in_linear_time(name: str, status: int) -> None:
    """A reply may nest and repeat what docllm looks for."""

    def made(n: int) -> bytes:
        return orjson.dumps(REPLIES[name](n))

    assert growth(lambda body: judge(Reply(status, {}, body), FACTS), made) <= LINEAR
