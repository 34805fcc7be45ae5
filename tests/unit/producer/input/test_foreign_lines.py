"""A file of another program's lines is named once; among good lines, each is refused."""

import io
import json
from typing import Any

import orjson
import pytest

from docllm.producer.input.lines import InvalidLine, ValidLine, read_lines
from docllm.producer.input.survey import surveyed
from docllm.schemas.errors import ConfigError

GOOD = b'{"id": "good", "prompt": "x"}\n'
MESSAGES = [{"role": "user", "content": "hi"}]
ANTHROPIC = {"custom_id": "a", "params": {"model": "m", "max_tokens": 5, "messages": MESSAGES}}
TASKS = [{"id": f"é{number}", "prompt": "x"} for number in range(150)]
ROWS = [json.dumps(task, ensure_ascii=False) for task in TASKS]
LINES = "\n".join(ROWS) + "\n"
EXPORTED = {"id": "a", "status": "dead", "result": None, "attempts": 1, "model": "m"}


def read(
    content: bytes, *, source: str = "a b.jsonl", reject_all: bool = False
) -> list[ValidLine | InvalidLine]:
    lines = read_lines("-", stdin=io.BufferedReader(io.BytesIO(content)))
    return list(surveyed(lines, source=source, batch="b", reject_all=reject_all))


def refusal(content: bytes, source: str = "a b.jsonl") -> str:
    with pytest.raises(ConfigError) as refused:
        read(content, source=source)
    return str(refused.value)


def many(*lines: Any) -> bytes:
    return b"".join(orjson.dumps(line) + b"\n" for _ in range(50) for line in lines)


def body(**fields: Any) -> dict[str, Any]:
    return {"custom_id": "a", "body": fields}


OBJECTS = [
    (many(ANTHROPIC), "Anthropic's Message Batches"),
    (many({"request": {"contents": []}}), "Vertex AI's"),
    (many({"custom_id": "a", "request": {"anthropic_version": "v"}}), "Claude's batches"),
    (many({"key": "a", "request": {"contents": []}}), "Gemini's"),
    (many({"recordId": "1", "modelInput": {}}), "Amazon Bedrock's"),
    (many({"batch_request_id": "1", "batch_request": {}}), "xAI's"),
    (many({"id": "batch_req_1", "custom_id": "a", "response": {}}), "a result of a batch or chat"),
    (many({"custom_id": "a", "response": None, "error": {}}), "a result of a batch or chat"),
    (many({"custom_id": "a", "result": {"type": "succeeded"}}), "a result of a batch or chat"),
    (many({"id": "chatcmpl-1", "choices": []}), "a result of a batch or chat"),
    (many({"recordId": "1", "modelInput": {}, "modelOutput": {}}), "a result of a batch or chat"),
    (many(EXPORTED), "a result that docllm exported"),
    (many({"key": "a", "request": {"messages": MESSAGES}}), "rename the field request to body"),
    (many({"messages": MESSAGES}), "messages, but not in a body"),
    (many({"custom_id": "a", "url": "/v1/embeddings", "body": {}}), "'/v1/embeddings'"),
    (many(body(input="x"), body(prompt="x")), "a request of another API"),
    (many({"title": "a", "text": "b"}), "has no field of a task line, but title, text"),
    (many(ANTHROPIC, {"modelInput": {}}), "line 1 is a line of Anthropic's Message Batches"),
    (orjson.dumps({"tasks": TASKS}), "has no field of a task line, but tasks"),
    (many({"id": "a", "promt": "x"}) * 2, "promt is not a known field, and none of the first 100"),
    (many(["a"], 5, None), "a JSON array"),
    (many("a", 5, None), "line 1 is JSON, but no object, and none of the first 100 lines"),
]
TEXTS = [
    ("\n [\n[1],\n[2]\n]\n", "line 2 begins a JSON array"),
    ("[[1]]", "begins a JSON array"),
    (json.dumps(TASKS[0], indent=1), "a JSON object over several lines"),
    ('{ "id": "a",\n  "prompt": "x"\n}\n', "a JSON object over several lines"),
    (json.dumps({"tasks": TASKS}, indent=1), "a JSON object over several lines"),
    (",\n".join(ROWS), "line 1 ends with a comma"),
    (" , \r\n".join(ROWS[:3]), "line 1 ends with a comma"),
    (LINES.replace("\n", "\r"), "lines ended by CR alone"),
    (LINES.replace("\n", "\r") * 1000, "lines ended by CR alone"),
    ("".join(ROWS), "holds several objects; put each object on one line: jq -c ."),
    (" ".join(ROWS), "holds several objects; put"),
    (LINES.replace("\n", "\0"), r"holds several objects, with '\x00' between"),
    (", ".join(ROWS), "holds several objects, with ',' between"),
    (r"\n".join(ROWS), r"holds several objects, with '\\n' between"),
    ("".join(f"\x1e{row}\n" for row in ROWS), "a JSON text sequence (RFC 7464)"),
    ("".join(f"{row} // c\n" for row in ROWS), "has a comment"),
    ("".join(f"{row};\n" for row in ROWS), "has ';' behind its object"),
    (LINES.replace("}", ",}"), "has a comma before a closing bracket"),
    (LINES.replace('"', "'"), "Python's repr"),
    (LINES.replace('"x"', "None"), "Python's repr"),
    (repr(TASKS), "Python's repr"),
    (repr(LINES.encode()), "Python's repr"),
    ("{id: 'a'}\n" * 150, "without quotes (JavaScript, JSON5, YAML)"),
    ('{"id": "a", // first\n' * 150, "has a comment"),
    ("\n".join("{“id”: “a”}" for _ in ROWS), "has typographic quotes"),
    (LINES.replace('"', '\\"'), "has backslashes before its quotes"),
    ("\n".join(map(json.dumps, ROWS)), "is JSON within a text of JSON"),
    ("".join(f"data: {row}\n" for row in ROWS), "has text before its object"),
    ("module.exports = {\n", "is source code"),
    ("id,prompt\n" + "a,hi\n" * 50, "a row of a table (CSV)"),
    ("id\tprompt\n" + "a\thi\n" * 50, "a row of a table (CSV)"),
    ("Dear reader\n", "docllm load --documents 'a b.jsonl' --prompt"),
    ("- id: a\n  prompt: x\n" * 50, "is YAML"),
    ("- {id: a}\n" * 50, "is YAML"),
    ("[[tasks]]\nid = 'a'\n" * 50, "line 1 is a section of TOML or INI"),
    ("<!DOCTYPE html>\n<html>\n", "a page of HTML or XML"),
    ("<tasks>\n<task/>\n", "a page of HTML or XML"),
    ("version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 9\n", "git lfs pull"),
]


@pytest.mark.parametrize(
    ("content", "words"), [*OBJECTS, *((text.encode(), words) for text, words in TEXTS)]
)
def test_a_file_of_another_form_is_refused_once(content: bytes, words: str) -> None:
    """Nothing is loaded, and the cause is said once."""
    message = refusal(content)

    assert words in message
    assert message.startswith("a b.jsonl: ")
    assert message.endswith("; nothing is loaded")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("cp1252", "probably Windows-1252"),
        ("mac-roman", "iconv -f WINDOWS-1252 -t UTF-8 'a b.jsonl' | docllm load - --batch b"),
        ("gb18030", "such as GB18030, Shift_JIS or KOI8-R"),
        ("cp037", "is not UTF-8, and has no JSON"),
    ],
)
def test_a_file_in_another_encoding_is_refused_once(encoding: str, words: str) -> None:
    """Its lines beyond ASCII are not repaired by hand; it is converted as a whole."""
    ascii_lines = '{"id": "a", "prompt": "x"}\n' * 200
    text = LINES.replace("é", "你好世界") if encoding == "gb18030" else LINES
    assert words in refusal((ascii_lines + text).encode(encoding))


def test_standard_input_keeps_the_name_of_any_file() -> None:
    """The file that was piped in is not known."""
    assert refusal(b"[1]", "-").startswith("standard input: line 1 begins a JSON array")
    assert "jq -c '.[]' FILE | docllm load - --batch b" in refusal(b"[1]", "-")


@pytest.mark.parametrize("bad", [many(ANTHROPIC)[:500], b"# tasks\n# of May\n", b"{'id': 'a'}\n"])
def test_lines_of_another_form_among_good_ones_stop_nothing(bad: bytes) -> None:
    """The good lines are loaded, before and after; each bad one can be repaired by its text."""
    for content in (bad.rpartition(b"\n")[0] + b"\n" + GOOD, GOOD + bad + b"\n" + GOOD):
        lines = read(content)

        assert isinstance(lines[-1], ValidLine)
        refused = [line for line in lines if isinstance(line, InvalidLine)]
        assert refused
        assert all(line.text for line in refused)


@pytest.mark.parametrize("foreign", [many(ANTHROPIC), b'{"id": "\xe9"}\n' * 50])
def test_many_lines_of_another_form_are_one_bad_line(foreign: bytes) -> None:
    """What is before and behind them is loaded."""
    utf8 = '{"id": "é", "prompt": "x"}\n'.encode()
    first, second, third = read(utf8 + foreign + GOOD)

    assert isinstance(first, ValidLine)
    assert isinstance(third, ValidLine)
    assert isinstance(second, InvalidLine)
    assert (second.line, "as is each line up to 51" in second.error) == (2, True)


def test_lines_that_can_be_repaired_are_rejected_one_by_one() -> None:
    """A short file of our lines with mistakes has its rejects; a long one, if all are wanted."""
    mistake = b'{"id": "a", "promt": "x"}\n'

    assert [line.line for line in read(mistake * 3)] == [1, 2, 3]
    assert len(read(mistake * 200 + GOOD, reject_all=True)) == 201


def test_a_mistake_in_a_line_of_ours_keeps_its_own_error() -> None:
    """A field that is wrong is named, although another program's lines have such a field."""
    (line,) = read(b'{"id": "a", "prompt": "x", "response": 1}\n')

    assert isinstance(line, InvalidLine)
    assert (line.field, line.error) == ("response", "is not a known field")


def test_an_image_in_a_line_that_is_too_large_gets_advice_of_its_own() -> None:
    """A line of OpenAI's form has no input.uri; the provider may fetch the image instead."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4_000_000}}

    (line,) = read(orjson.dumps(body(messages=[{"role": "user", "content": [image]}])))

    assert isinstance(line, InvalidLine)
    assert "image_url" in line.fix
    assert "input.uri" not in line.fix
