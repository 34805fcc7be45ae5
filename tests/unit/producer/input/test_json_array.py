"""An array of objects is read like a file of lines: item by item, in bounded memory."""

import io
import json
import tracemalloc
from typing import Any

import pytest

from docllm.producer.input.json_array import ArrayItems
from docllm.producer.input.lines import InvalidLine, ValidLine, read_lines
from docllm.producer.input.survey import surveyed
from docllm.schemas.errors import ConfigError
from docllm.schemas.task.record.envelope import MAX_TASK_BYTES

TASKS = [{"id": f"é{number}", "prompt": 'say "[]{},"\\'} for number in range(150)]


class Slow(io.RawIOBase):
    """A stream that returns few bytes at a time, as a slow pipe does."""

    def __init__(self, content: bytes, size: int) -> None:
        self._file, self._size = io.BytesIO(content), size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._file.read(min(self._size, len(buffer)))
        buffer[: len(part)] = part
        return len(part)


def read(content: bytes) -> list[ValidLine | InvalidLine]:
    lines = read_lines("-", stdin=io.BufferedReader(io.BytesIO(content)))
    return list(surveyed(lines, source="a.json", batch="b"))


def objects(lines: list[ValidLine | InvalidLine]) -> list[dict[str, Any]]:
    return [json.loads(line.value) for line in lines if isinstance(line, ValidLine)]


@pytest.mark.parametrize("indent", [None, 1], ids=["one line", "many lines"])
@pytest.mark.parametrize("before", ["", "\ufeff", " \r\n"], ids=["plain", "BOM", "blank"])
def test_each_item_is_a_task_on_one_line(indent: int | None, before: str) -> None:
    """White space between items is nobody's; a task's value has no line end."""
    lines = read((before + json.dumps(TASKS, indent=indent, ensure_ascii=False) + "\n").encode())

    assert objects(lines) == TASKS
    assert [line.line for line in lines] == list(range(1, 151))
    assert all(b"\n" not in line.value for line in lines if isinstance(line, ValidLine))


def test_an_array_is_read_wherever_its_parts_end() -> None:
    """A part may end within an escape, a letter or a bracket."""
    content = json.dumps(TASKS[:5], ensure_ascii=False).encode()
    for size in (1, 2, 3, 7):
        items = ArrayItems(io.BufferedReader(Slow(content, size), size), most=1000)
        assert [json.loads(item) for item, _ in items] == TASKS[:5]


def test_an_empty_array_has_no_item() -> None:
    """It is an input without tasks."""
    assert read(b"[]") == read(b" [ \n ] ") == []


def test_a_bad_item_stops_nothing() -> None:
    """It is named by its number, and its text can be repaired."""
    first, bad, none, last = read(
        b'[{"id": "a", "prompt": "x"}, {"id": 5,\n "prompt": "x"}, , {"id": "b", "prompt": "x"}]'
    )

    assert isinstance(bad, InvalidLine)
    assert str(bad) == "item 2: id is a whole number; write a text"
    assert bad.text == '{"id": 5,  "prompt": "x"}'
    assert isinstance(none, InvalidLine)
    assert objects([first, last]) == [
        {"id": "a", "prompt": "x"},
        {"id": "b", "prompt": "x"},
    ]


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        (b', {"id": "b", "prom', "it ends in the middle of its JSON array"),
        (b', {"id": "b"', "it ends in the middle"),
        (b'] {"id": "b"}', "there is more behind its JSON array"),
        (b"}]", "there is more behind"),
    ],
)
def test_an_array_that_is_cut_keeps_what_is_before_the_cut(rest: bytes, words: str) -> None:
    """The damage is one bad line, behind the good ones."""
    *good, damage = read(b'[{"id": "a", "prompt": "x"}, {"id": "c", "prompt": "x"}' + rest)

    assert objects(good)[0] == {"id": "a", "prompt": "x"}
    assert isinstance(damage, InvalidLine)
    assert words in damage.error


def test_an_item_that_is_too_large_is_never_in_memory() -> None:
    """It is refused with its size, and the next one is read."""
    large = b'[{"id": "a", "prompt": "' + b"p" * 30_000_000 + b'"}, {"id": "b", "prompt": "x"}]'
    tracemalloc.start()
    bad, good = read(large)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert isinstance(bad, InvalidLine)
    assert str(bad).startswith(f"item 1: is {len(large) - 30} bytes long; use at most")
    assert objects([good]) == [{"id": "b", "prompt": "x"}]
    assert peak < 5 * MAX_TASK_BYTES


def test_an_array_of_anything_else_is_refused_once() -> None:
    """The message speaks of items."""
    with pytest.raises(ConfigError) as refused:
        read(json.dumps([{"title": "a"}] * 150).encode())

    assert "item 1 has no field of a task line, but title" in str(refused.value)
    assert "none of the first 100 items is a task" in str(refused.value)
