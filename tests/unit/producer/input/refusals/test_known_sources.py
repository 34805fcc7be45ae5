"""Documents that agents of an older version cannot read."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from docllm.producer.input.lines import InvalidLine, ValidLine, read_line
from docllm.producer.input.refusals.known_sources import KnownSources

FILE = {"uri": "file:///a", "size": 1}


def good(**fields: Any) -> ValidLine:
    line = read_line(1, orjson.dumps({"id": "a", "prompt": "{document}"} | fields))
    assert isinstance(line, ValidLine)
    return line


def checked(line: ValidLine, *older: str) -> ValidLine | InvalidLine:
    return KnownSources(older).check(line)


@pytest.mark.parametrize(
    ("source", "field"),
    [
        ({"uri": "s3://b/a", "etag": "e"}, "input.uri"),
        ({"uri": "https://docs.example.com/a"}, "input.uri"),
        (FILE | {"etag": "e"}, "input.etag"),
    ],
)
def test_older_agents_would_give_up_the_task(source: dict[str, Any], field: str) -> None:
    """The line is refused while they run, and taken when they are gone."""
    line = good(input=source)

    refused = checked(line, "a1", "a2")

    assert isinstance(refused, InvalidLine)
    assert (refused.field, refused.text) == (field, line.value.decode())
    assert "(a1, a2); stop or update these agents" in str(refused)
    assert checked(line) == line


@pytest.mark.parametrize("source", [{"text": "a"}, FILE])
def test_what_they_read_is_taken(source: dict[str, Any]) -> None:
    """Texts and files go to agents of any version."""
    line = good(input=source)

    assert checked(line, "a1") == line


def test_a_document_is_named() -> None:
    """Nobody repairs the line of an object in a rejects file."""
    refused = checked(replace(good(input={"uri": "s3://b/a"}), document="a"), "a1")

    assert isinstance(refused, InvalidLine)
    assert (refused.document, refused.text) == ("a", None)
