"""Bodies that a strict reader of JSON refuses although a person can read them."""

import gzip
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson
import pytest

from docllm.agent.handlers.calls.repair import correction
from docllm.agent.handlers.calls.results import Answer
from docllm.agent.judge import judge
from docllm.agent.ports import Reply
from docllm.agent.ports.outcome import Retry, Succeeded
from docllm.producer.ledger.results.result_lines import (
    ExportedTask,
    Result,
    docllm_line,
    openai_line,
)
from docllm.schemas.task.result.answer import answer_value
from docllm.schemas.task.result.codec import COMPLETION
from docllm.schemas.task.result.json_answer import read_json
from docllm.schemas.task.result.output_pointer import OutputPointer, output_of
from docllm.schemas.task.states import Status
from tests.support.replies import FACTS, completion

PLAIN = completion("A<>Z")
LINE = b'{"id":"a","prompt":"p"}'


def body(inside: bytes, more: bytes = b"") -> bytes:
    """Return a completion with bytes in its text, and more fields."""
    return PLAIN.replace(b"<>", inside).replace(b'{"model"', b"{" + more + b'"model"')


BODIES = {
    "half escaped": (body(rb"\ud83d"), "A\ufffdZ", ["surrogate"]),
    "second half": (body(rb"\ude00"), "A\ufffdZ", ["surrogate"]),
    "half as bytes": (body(b"\xed\xa0\xbd"), "A\ufffdZ", ["surrogate"]),
    "both halves as bytes": (body(b"\xed\xa0\xbd\xed\xb8\x80"), "A\U0001f600Z", ["surrogate"]),
    "line break": (body(b"\n"), "A\nZ", ["control"]),
    "control": (body(b"\x01\t"), "A\x01\tZ", ["control"]),
    "cut character": (body(b"\xe2\x82"), "A\ufffdZ", ["encoding"]),
    "latin 1": (body(b"\xe9"), "A\xe9Z", ["encoding"]),
    "letters and quotes of Windows-1252": (
        body(b"\x93\xf6\x94"),
        "A\u201c\xf6\u201dZ",
        ["encoding"],
    ),
    "damaged UTF-8": (body(b"\xc3\xa9\xe9"), "A\xe9\ufffdZ", ["encoding"]),
    "nan": (body(b"", b'"logprobs":[NaN,-Infinity,Infinity],'), "AZ", ["number"]),
    "too large": (body(b"", b'"logprobs":[1e999,-1E400,%s],' % (b"9" * 400)), "AZ", ["number"]),
    "all": (
        body(b"\\ud83d\n\xff", b'"logprobs":NaN,'),
        "A\ufffd\n\xffZ",
        ["encoding", "number", "control", "surrogate"],
    ),
    "mark": (b"\xef\xbb\xbf" + PLAIN, "A<>Z", None),
    "utf-16": (PLAIN.decode().encode("utf-16"), "A<>Z", None),
    "nul": (body(rb"\u0000"), "A\0Z", None),
    "whole pair": (body(rb"\ud83d\ude00"), "A\U0001f600Z", None),
}
OF_BODIES = pytest.mark.parametrize(("body", "text", "mended"), BODIES.values(), ids=BODIES)


def ended(stored: bytes, codec: int = COMPLETION) -> ExportedTask:
    return ExportedTask(
        task_id=1,
        key="a",
        status=Status.SUCCEEDED,
        counted_attempts=0,
        input=LINE,
        tokens_in=10,
        tokens_out=5,
        cost_micro=0,
        result=Result(codec, stored, "m", "r", datetime(2027, 1, 31)),  # noqa: DTZ001
        letter=None,
    )


def exported(task: ExportedTask) -> dict[str, Any]:
    line: dict[str, Any] = orjson.loads(docllm_line(task) or b"")
    return line


@OF_BODIES
@pytest.mark.parametrize("verbatim", [False, True])
def test_a_paid_answer_is_taken(
    body: bytes, text: str, mended: list[str] | None, *, verbatim: bool
) -> None:
    """The bytes are stored as they came, the usage counts, and the mends are noted."""
    outcome = judge(Reply(200, {}, body), replace(FACTS, verbatim=verbatim))

    assert isinstance(outcome, Succeeded)
    assert outcome.body == body
    assert (outcome.spent.tokens_in, outcome.spent.tokens_out) == (12, 3)
    assert outcome.oddities == tuple(f"mended {name}" for name in mended or ())
    assert Answer(body, outcome).text == text
    assert answer_value(LINE, outcome.codec, outcome.body) == text


@OF_BODIES
def test_exports_name_what_was_mended(body: bytes, text: str, mended: list[str] | None) -> None:
    """Both formats give the text; ours names the mends."""
    line = exported(ended(body))
    assert (line["result"], line.get("mended")) == (text, mended)

    response = orjson.loads(openai_line(ended(body)) or b"")["response"]["body"]
    assert response["choices"][0]["message"]["content"] == text
    assert response["usage"]["total_tokens"] == 15


@OF_BODIES
def test_an_output_is_json_whatever_came(body: bytes, text: str, mended: list[str] | None) -> None:
    """A reader of the object needs no mending; an export from it equals the ledger's."""
    output = output_of(key="a", batch="b", codec=COMPLETION, stored=body)
    content = orjson.loads(output.content)
    assert (content["result"], content.get("mended")) == (text, mended)
    assert content["completion"]["choices"][0]["message"]["content"] == text

    pointer = OutputPointer.of_stored(output.pointer("file:///o").stored())
    task = ended(pointer.result_in(output.content), pointer.codec)
    assert task.result is not None
    task = replace(task, result=replace(task.result, mended=pointer.mended))
    assert exported(task) == exported(ended(body))


@pytest.mark.parametrize(
    ("content", "value", "mended"),
    [
        ('{"a": "x\ny"}', {"a": "x\ny"}, ["control"]),
        ('{"a": "\\ud83d"}', {"a": "\ufffd"}, ["surrogate"]),
        ('```json\n{"a": NaN}\n```', {"a": None}, ["number"]),
    ],
)
def test_the_json_of_an_answer_is_mended_too(
    content: str, value: object, mended: list[str]
) -> None:
    """Under a schema the text is JSON of its own, unless its type is strict."""
    facts = replace(FACTS, schema={"type": "object"})
    outcome = judge(Reply(200, {}, completion(content)), facts)
    assert isinstance(outcome, Succeeded)
    task = replace(ended(outcome.body), input=b'{"id":"a","schema":{}}')
    line = exported(task)
    assert (line["result"], line["mended"]) == (value, mended)

    strict = judge(Reply(200, {}, completion(content)), replace(facts, strict=True))
    assert isinstance(strict, Retry)


def test_an_answer_to_correct_may_need_mending() -> None:
    """The model gets its answer back as it could be read."""
    facts = replace(FACTS, schema={"type": "object"})
    reply = Reply(200, {}, body(rb"\ud83d"))
    sent = orjson.dumps({"messages": [{"role": "user", "content": "p"}]})

    corrected = correction(sent, reply, judge(reply, facts), facts.schema)

    assert corrected is not None
    assert orjson.loads(corrected)["messages"][1]["content"] == "A\ufffdZ"


@pytest.mark.parametrize(
    "broken",
    [
        PLAIN[:-20],
        PLAIN + b"}",
        b'{"a": NaN, "b": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a": NaN, "b": [' + b"[" * 1500,
        b'{"a": nan}',
        b'{"a": "\\x"}',
    ],
)
def test_what_nobody_can_read_is_refused(broken: bytes) -> None:
    """Nesting without end is no way to stop an agent."""
    outcome = judge(Reply(200, {}, broken), FACTS)

    assert isinstance(outcome, Retry)
    assert outcome.failure.error_class == "BAD_OUTPUT"
    assert outcome.failure.text.startswith("the reply is not JSON: ")


def test_plain_json_is_not_copied() -> None:
    """What a strict reader takes is returned as it is, with all its digits."""
    text = b'{"iban": 12345678901234567890123, "sum": 1.50}'

    assert read_json(text).text is text


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        (Reply(202, {}, b""), "status 202: the reply is empty"),
        (Reply(200, {}, b" \n"), "the reply is empty"),
        (Reply(200, {}, b'data: {"choices":[]}\n\n'), "the server streams its answer"),
        (Reply(200, {}, b": keep-alive\n\ndata: {}"), "the server streams its answer"),
        (Reply(200, {}, b"event: message\ndata: {}"), "the server streams its answer"),
        (Reply(200, {}, b"<html>"), "the reply is not a JSON object"),
        (Reply(200, {}, gzip.compress(b"{}")), "the reply is compressed, but its headers"),
        (Reply(200, {}, b"\x28\xb5\x2f\xfd\x04"), "the reply is compressed, but its headers"),
    ],
)
def test_a_body_that_is_no_answer_is_named_for_what_it_is(reply: Reply, named: str) -> None:
    """The address is doubted only where nothing else explains the body."""
    outcome = judge(reply, FACTS)

    assert isinstance(outcome, Retry)
    assert outcome.failure.error_class == "SERVER"
    assert outcome.failure.text.startswith(named)
