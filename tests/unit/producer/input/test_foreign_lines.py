"""A file of another program's lines is named once; among good lines, each is refused."""

import io
import json
from typing import Any

import orjson
import pytest

from docllm.producer.input.lines import InvalidLine, ValidLine, read_lines

GOOD = b'{"id": "good", "prompt": "x"}\n'
MESSAGES = [{"role": "user", "content": "hi"}]
ANTHROPIC = {"custom_id": "a", "params": {"model": "m", "max_tokens": 5, "messages": MESSAGES}}


def read(content: bytes) -> list[ValidLine | InvalidLine]:
    return list(read_lines("-", stdin=io.BytesIO(content)))


def many(line: Any) -> bytes:
    return b"".join(orjson.dumps(line) + b"\n" for _ in range(50))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (many(ANTHROPIC), "Anthropic's Message Batches"),
        (many({"request": {"contents": []}}), "Vertex AI's"),
        (many({"key": "a", "request": {"contents": []}}), "Gemini's"),
        (many({"recordId": "1", "modelInput": {}}), "Amazon Bedrock's"),
        (many({"id": "batch_req_1", "custom_id": "a", "response": {}}), "API's results"),
        (many({"custom_id": "a", "result": {"type": "succeeded"}}), "API's results"),
        (many({"key": "a", "request": {"messages": MESSAGES}}), "rename the field request to body"),
        (many({"messages": MESSAGES}), "messages, but not in a body"),
        (many({"custom_id": "a", "url": "/v1/embeddings", "body": {}}), "'/v1/embeddings'"),
        (many({"title": "a", "text": "b"}), "has no field of a task line, but title, text"),
        (many([1]), "a JSON array"),
        (orjson.dumps([{"id": "a", "prompt": "x"}]), "a JSON array"),
        (json.dumps([ANTHROPIC], indent=1).encode(), "a JSON array"),
        (json.dumps(ANTHROPIC, indent=1).encode(), "a JSON object over several lines"),
        (b"id,prompt\n" + b"a,hi\n" * 50, "a row of a table (CSV)"),
        (b"{'id': 'a', 'prompt': None}\n" * 50, "Python's repr"),
        (b"<!DOCTYPE html>\n<html>\n", "a page of HTML or XML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 9\n", "git lfs pull"),
    ],
)
def test_a_file_of_another_form_is_one_bad_line(content: bytes, words: str) -> None:
    """The cause is said once, before the load could stop after 10,000 bad lines."""
    (line,) = read(content)

    assert isinstance(line, InvalidLine)
    assert words in str(line)
    assert "the rest is not read" in line.error or "each line up to" in line.error
    assert line.text is None


@pytest.mark.parametrize("bad", [many(ANTHROPIC)[:500], b"# tasks\n# of May\n", b"{'id': 'a'}\n"])
def test_lines_of_another_form_among_good_ones_stop_nothing(bad: bytes) -> None:
    """The good lines are loaded, before and after; each bad one can be repaired by its text."""
    for content in (bad.rpartition(b"\n")[0] + b"\n" + GOOD, GOOD + bad + b"\n" + GOOD):
        lines = read(content)

        assert isinstance(lines[-1], ValidLine)
        refused = [line for line in lines if isinstance(line, InvalidLine)]
        assert refused
        assert all(line.text for line in refused)


def test_many_lines_of_another_form_are_one_bad_line() -> None:
    """What is before and behind them is loaded."""
    first, second, third = read(GOOD + many(ANTHROPIC) + GOOD)

    assert isinstance(first, ValidLine)
    assert isinstance(third, ValidLine)
    assert isinstance(second, InvalidLine)
    assert (second.line, "as is each line up to 51" in second.error) == (2, True)


def test_a_mistake_in_a_line_of_ours_keeps_its_own_error() -> None:
    """A field that is wrong is named, although another program's lines have such a field."""
    (line,) = read(b'{"id": "a", "prompt": "x", "response": 1}\n')

    assert isinstance(line, InvalidLine)
    assert (line.field, line.error) == ("response", "is not a known field")


def test_an_image_in_a_line_that_is_too_large_gets_advice_of_its_own() -> None:
    """A line of OpenAI's form has no input.uri; the provider may fetch the image instead."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4_000_000}}
    body = {"messages": [{"role": "user", "content": [image]}]}

    (line,) = read(orjson.dumps({"custom_id": "a", "body": body}))

    assert isinstance(line, InvalidLine)
    assert "image_url" in line.fix
    assert "input.uri" not in line.fix
