"""Task lines: which are accepted, which are refused, and with which errors.

The published JSON Schemas agree.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
import pytest

from docllm.schemas.task.line.parsing import LineError, TaskLine, parse, parse_again

SCHEMAS = Path(__file__).parents[5] / "schemas" / "json"
OURS = {"id": "a", "prompt": "Summarize: {document}", "input": {"text": "Sales rose."}}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
OPENAI = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": CHAT}
SHA = "0123456789abcdef" * 4


def ours(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in (OURS | fields).items() if value is not ...}


def openai(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in (OPENAI | fields).items() if value is not ...}


GOOD = [
    ours(),
    ours(type="document", model="gpt", tenant="acme", priority=9, max_attempts=100),
    ours(priority=3.0),
    ours(input=..., prompt="Tell a joke."),
    ours(input={"text": " a\n"}),
    ours(input={"uri": "file:///data/a%20b.txt"}),
    ours(input={"uri": "file:///a", "size": 0, "sha256": SHA}),
    ours(input={"uri": "s3://my.bucket/a%20b/c.txt", "size": 0, "etag": '"0abc-2"'}),
    ours(input={"uri": "gs://b/a"}),
    ours(input={"uri": "az://b/a", "etag": "0x8DB"}),
    ours(input={"uri": "https://docs.example.com/a?b=1"}),
    ours(input={"uri": "https://docs.example.com:8443/(a)[1]~!$%20'^|{}"}),
    ours(input={"uri": "https://[2606:4700::1]:8443/a"}),
    ours(input={"uri": "https://files.internal"}),
    ours(type="invoice", prompt=...),
    ours(type="invoice", prompt="no placeholder", input=...),
    ours(params={"temperature": 0, "stop": ["a"]}),
    ours(params={"seed": 2**64 - 1, "least": -(2**63), "float": 1e30}),
    ours(schema={"type": "object"}),
    ours(schema={}),
    ours(deadline="2027-01-31T18:00:00Z"),
    ours(deadline="2027-01-31t18:00:00.123456789+02:00"),
    ours(metadata={"any": [1, None, {"deep": True}]}),
    ours(route="fast", routes_allowed=["fast", "other route"]),
    ours(time_limit_s=0.1),
    ours(output_uri="s3://b/out/", output_raw=False),
    ours(output_uri="s3://b/out/a.json", output_raw=True),
    ours(output_uri="file:///a/b"),
    ours(time_limit_s=86400),
    openai(time_limit_s=2.5),
    openai(time_limit_s=None),
    ours(routes_allowed=["r" * 64] * 100),
    ours(id="é" * 95),
    ours(id="with blank inside"),
    ours(prompt="{ { {document} } {other}"),
    openai(),
    openai(body=CHAT | {"stream": False, "temperature": 1}),
    openai(body={"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}),
    openai(body=CHAT | {"stream": None, "model": None, "temperature": None, "n": None}),
    openai(method=..., url=...),
    openai(method=None, url=None),
    openai(url="/chat/completions"),
    openai(url="/v1/chat/completions/", metadata={"row": 1}),
    openai(metadata=None),
    openai(url="/v1/chat/completions?api-version=2024-10-21"),
    openai(url="/openai/deployments/my-model/chat/completions?api-version=2024-10-21"),
    openai(url="https://llm.example.com/v1/chat/completions"),
    openai(custom_id=..., key="a", method=..., url=...),
]

# The line, the field that the error names, and words of the error.
BAD = [
    (ours(id=...), "id", "missing"),
    (ours(id=""), "id", "empty"),
    (ours(id=7), "id", "whole number"),
    (ours(id=None), "id", "null"),
    (ours(id=" a"), "id", "blanks"),
    (ours(id="a\u00a0"), "id", "blanks"),
    (ours(id="a\tb"), "id", "control"),
    (ours(id="a\x00b"), "id", "control"),
    (ours(id="a\x7fb"), "id", "control"),
    (ours(id="a" * 192), "id", "192 bytes"),
    (ours(promt="x"), "promt", "not a known field"),
    (ours(text="x"), "text", "not a known field"),
    (ours(uri="file:///a"), "uri", "not a known field"),
    (ours(key="x"), "key", "not a known field"),
    (ours(prompt=...), "prompt", "missing"),
    (ours(prompt=""), "prompt", "empty"),
    (ours(prompt=["x"]), "prompt", "list"),
    (ours(prompt="Summarize"), "prompt", "has no {document}"),
    (ours(type="document", prompt="Summarize"), "prompt", "has no {document}"),
    (ours(type="invoice", prompt="Summarize"), "prompt", "has no {document}"),
    (ours(type="document", prompt=...), "prompt", "missing"),
    (ours(input=...), "input", "missing"),
    (ours(input="Sales rose."), "input", "text"),
    (ours(input={}), "input", "exactly one"),
    (ours(input={"text": "a", "uri": "file:///a"}), "input", "exactly one"),
    (ours(input={"text": 1}), "input.text", "whole number"),
    (ours(input={"text": "a", "size": 1}), "input.size", "not known"),
    (ours(input={"uri": "http://example.org/a"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "https://user:secret@h/a"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "https://user@h/a"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "https://"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "https:///a"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "https://h\\@other/a"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "https://h/a#b"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "https://h/a\\b"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "https://h:port/a"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "https://%68/a"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "/data/a.txt"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "file:///a b"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "file://host/a"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "s3://bucket"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "s3://key:secret@bucket/a"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "S3://bucket/a"}), "input.uri", "URI of a document"),
    (ours(input={"uri": "s3://bucket/a", "etag": ""}), "input.etag", "empty"),
    (ours(input={"uri": "s3://bucket/a", "etag": "a b"}), "input.etag", "not an etag"),
    (ours(input={"uri": "s3://bucket/a", "etag": "a" * 256}), "input.etag", "not an etag"),
    (ours(input={"text": "a", "etag": "a"}), "input.etag", "not known"),
    (ours(input={"uri": "file:///a", "size": -1}), "input.size", "-1"),
    (ours(input={"uri": "file:///a", "sha256": "AB"}), "input.sha256", "SHA-256"),
    (ours(type="two words"), "type", "not a name"),
    (ours(type="a" * 65), "type", "not a name"),
    (ours(tenant="-a"), "tenant", "not a name"),
    (ours(model=""), "model", "empty"),
    (ours(model="m" * 192), "model", "192 characters"),
    (ours(model="m "), "model", "blanks"),
    (ours(model="\u3000m"), "model", "blanks"),
    (ours(model="\n"), "model", "blanks"),
    (ours(route=""), "route", "empty"),
    (ours(route="r "), "route", "blanks"),
    (ours(route="r" * 65), "route", "65 characters"),
    (ours(route=None), "route", "null"),
    (ours(routes_allowed=[]), "routes_allowed", "empty"),
    (ours(routes_allowed="a"), "routes_allowed", "is a text"),
    (ours(routes_allowed=["a", 1]), "routes_allowed.1", "whole number"),
    (ours(routes_allowed=["a"] * 101), "routes_allowed", "101 routes"),
    (openai(route="a"), "route", "not a known field"),
    (ours(params=[]), "params", "list"),
    (ours(params={"messages": []}), "params.messages", "cannot be set"),
    (ours(params={"model": "m"}), "params.model", "cannot be set"),
    (ours(params={"stream": False}), "params.stream", "cannot be set"),
    (ours(schema=True), "schema", "true or false"),
    (ours(priority=True), "priority", "true or false"),
    (ours(priority=10), "priority", "10"),
    (ours(priority="1"), "priority", "text"),
    (ours(priority=1.5), "priority", "number"),
    (ours(priority=1e30), "priority", "is 1000"),
    (ours(max_attempts=0), "max_attempts", "0"),
    (ours(time_limit_s=0.05), "time_limit_s", "is 0.05"),
    (ours(output_uri="s3://b"), "output_uri", "folder for results"),
    (ours(output_uri="s3://b/a b"), "output_uri", "folder for results"),
    (ours(output_uri="https://b/a"), "output_uri", "folder for results"),
    (ours(output_raw=1), "output_raw", "whole number"),
    (ours(time_limit_s=86401), "time_limit_s", "is 86401"),
    (ours(time_limit_s="60"), "time_limit_s", "is a text"),
    (ours(time_limit_s=True), "time_limit_s", "is true or false"),
    (ours(time_limit_s=None), "time_limit_s", "is null"),
    (openai(time_limit_s=0), "time_limit_s", "is 0"),
    (ours(max_attempts=101), "max_attempts", "101"),
    (ours(deadline="2027-01-31T18:00:00"), "deadline", "time zone"),
    (ours(deadline="2027-01-31"), "deadline", "time"),
    (ours(deadline="2027-02-30T18:00:00Z"), "deadline", "time"),
    (ours(deadline="0001-01-01T00:00:00Z"), "deadline", "time"),
    (ours(deadline=1800000000), "deadline", "whole number"),
    (ours(metadata="x"), "metadata", "text"),
    (openai(custom_id=...), "custom_id", "missing"),
    (openai(custom_id=" a"), "custom_id", "blanks"),
    (openai(key="b"), "key", "second id"),
    (openai(custom_id=..., key=" a"), "key", "blanks"),
    (openai(method="GET"), "method", "not POST"),
    (openai(url="/v1/embeddings"), "url", "/v1/chat/completions"),
    (openai(url="/v1/embeddings?for=/chat/completions"), "url", "/v1/chat/completions"),
    (openai(url=7), "url", "/v1/chat/completions"),
    (openai(metadata="row 1"), "metadata", "is a text"),
    (openai(custom_id=None), "custom_id", "null"),
    (openai(body=...), "body", "missing"),
    (openai(body=[]), "body", "list"),
    (openai(body={"model": "m"}), "body.messages", "list of messages"),
    (openai(body=CHAT | {"messages": []}), "body.messages", "list of messages"),
    (openai(body=CHAT | {"messages": ["hi"]}), "body.messages", "list of messages"),
    (openai(body=CHAT | {"model": 4}), "body.model", "whole number"),
    (openai(body=CHAT | {"model": " m"}), "body.model", "blanks"),
    (openai(body=CHAT | {"stream": True}), "body.stream", "stream"),
    (openai(body=CHAT | {"stream": 0}), "body.stream", "stream"),
    (openai(id="a"), "id", "not a known field"),
]

# Lines that are valid by the JSON Schemas, which cannot express these rules.
BEYOND_JSON_SCHEMA = [
    pytest.param(
        ours(prompt="{document}" * 41, input={"text": "x" * 1_000_000}),
        "prompt",
        "41000000 characters",
        id="grows",
    ),
    (ours(id="é" * 96), "id", "192 bytes"),
    (ours(schema={"type": "objekt"}), "schema", "not a valid JSON Schema"),
    (ours(schema={"pattern": "("}), "schema", "not a valid JSON Schema"),
    (ours(schema={"$ref": "http://127.0.0.1:1/x"}), "schema", "not a valid JSON Schema"),
    (
        ours(
            schema={"allOf": [{"$ref": "#/$defs/a"}] * 400, "$defs": {"a": {"anyOf": [{}] * 400}}}
        ),
        "schema",
        "tries more than 100000",
    ),
    (
        ours(schema={"patternProperties": {f"{n}": {} for n in range(101)}}),
        "schema",
        "more than 100 different patterns",
    ),
    (ours(schema={"pattern": "\\s" * 1000}), "schema", "too many classes"),
    (ours(schema={"pattern": "\\pL{9999}"}), "schema", "takes at most 16 MiB"),
    (ours(schema={"$ref": "#/$defs/none"}), "schema", "not a valid JSON Schema"),
]


def validator(name: str) -> jsonschema_rs.Validator:
    schema = json.loads((SCHEMAS / name).read_bytes())
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)


def taken(value: bytes) -> bool:
    try:
        parse(value)
    except LineError:
        return False
    return True


def published(line: dict[str, Any]) -> jsonschema_rs.Validator:
    return validator(
        "openai_batch_line.json" if "custom_id" in line or "body" in line else "task_line.json"
    )


@pytest.mark.parametrize("line", GOOD, ids=str)
def test_a_good_line_is_taken_by_parse_and_by_the_published_schema(line: dict[str, Any]) -> None:
    """Every good line becomes a task, and its format's JSON Schema accepts it."""
    assert parse(orjson.dumps(line)).key == line.get("id", line.get("custom_id", line.get("key")))
    assert published(line).is_valid(line)


@pytest.mark.parametrize(("line", "field", "words"), BAD, ids=str)
def test_a_bad_line_is_refused_by_parse_and_by_the_published_schema(
    line: dict[str, Any], field: str, words: str
) -> None:
    """Every bad line names the field and the remedy, and its format's JSON Schema refuses it."""
    with pytest.raises(LineError) as refused:
        parse(orjson.dumps(line))

    assert (refused.value.field, words in refused.value.error) == (field, True), refused.value
    assert refused.value.fix
    assert not published(line).is_valid(line)


@pytest.mark.parametrize(("line", "field", "words"), BEYOND_JSON_SCHEMA, ids=str)
def test_rules_that_a_schema_cannot_express_are_checked_too(
    line: dict[str, Any], field: str, words: str
) -> None:
    """Only `parse` checks an id's bytes and the inner schema; the schema's description says so."""
    with pytest.raises(LineError, match=words) as refused:
        parse(orjson.dumps(line))

    assert refused.value.field == field
    assert published(line).is_valid(line)


def test_a_line_of_ours_becomes_its_task() -> None:
    """Each field of docllm's format arrives in the task under its own name."""
    line = ours(
        model="m",
        params={"n": 1},
        schema={"type": "object"},
        tenant="t",
        priority=2,
        max_attempts=3,
        metadata={"k": "v"},
    )
    line |= {
        "input": {"uri": "file:///a", "size": 5, "sha256": SHA, "etag": "e"},
        "deadline": "2027-01-31T18:00:00+02:00",
    }

    task = parse(orjson.dumps(line))

    assert task == TaskLine(
        key="a",
        format="docllm",
        tenant="t",
        model="m",
        prompt="Summarize: {document}",
        uri="file:///a",
        size=5,
        sha256=SHA,
        etag="e",
        params={"n": 1},
        schema={"type": "object"},
        priority=2,
        deadline=datetime(2027, 1, 31, 16, tzinfo=UTC),
        max_attempts=3,
        metadata={"k": "v"},
    )


def test_a_size_is_a_whole_number_however_it_is_written() -> None:
    """JSON knows one kind of number, so 18.0 is a whole number."""
    size = parse(orjson.dumps(ours(input={"uri": "file:///a", "size": 3.0}))).size

    assert (size, type(size)) == (3, int)


def test_an_openai_line_keeps_its_body() -> None:
    """An OpenAI line keeps the whole request, so that it is sent as it was written."""
    assert parse(orjson.dumps(OPENAI)) == TaskLine(
        key="a", format="openai", type="openai", model="m", body=CHAT
    )


@pytest.mark.parametrize(
    "line",
    [
        ours(**{"x\n2027-01-01 CRITICAL agent: all is lost \x1b[31m\u202e\x85" + "y" * 10_000: 1}),
        ours(metadata={"\x1b]0;title\x07\n": 1, "b:": 2}),
    ],
)
def test_quoted_text_in_an_error_forges_no_log_line(line: dict[str, Any]) -> None:
    """A foreign field name in an error cannot forge a line in a log or on a terminal."""
    value = orjson.dumps(line).replace(b'"b:"', b'"\\u001b]0;title\\u0007\\n"')

    with pytest.raises(LineError) as error:
        parse(value)

    shown = f"{error.value} {error.value.field} {error.value.error} {error.value.fix}"
    assert shown.isprintable()
    assert "\\x1b" in shown
    assert len(shown) < 1000


def test_every_error_is_limited_in_length() -> None:
    """An error has limited length, and keeps printable letters of any alphabet."""
    error = LineError("Größe", "e" * 10_000, "\u2028f" * 10_000)

    assert error.field == "Größe"
    assert max(map(len, (error.error, error.fix))) < 5_000
    assert str(error).isprintable()


def test_every_published_example_is_good() -> None:
    """The JSON Schemas' examples are valid by their own schema, and those of lines are tasks."""
    for path in sorted(SCHEMAS.glob("*.json")):
        for example in json.loads(path.read_bytes()).get("examples", ()):
            assert validator(path.name).is_valid(example), path.name
            if path.name.endswith("_line.json") and path.name != "result_line.json":
                assert parse(orjson.dumps(example))


def test_an_accepted_input_may_have_parts_of_a_newer_version() -> None:
    """Unknown parts are left out, so that a task of a newer load runs; new lines have none."""
    line = orjson.dumps(ours(input={"uri": "s3://b/a", "etag": "e", "version": "7"}))

    task = parse_again(line)

    assert (task.uri, task.etag) == ("s3://b/a", "e")
    with pytest.raises(LineError) as caught:
        parse(line)
    assert caught.value.field == "input.version"
