"""Reading lines: their limits, reported faults, and bounded memory."""

import gzip
import io
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from docllm.producer.input.lines import (
    InvalidLine,
    ValidLine,
    batch_name,
    clashing,
    read_line,
    read_lines,
)
from docllm.producer.input.rejects import Rejects
from docllm.schemas.task.record.envelope import MAX_TASK_BYTES


def task(key: str = "a") -> bytes:
    return orjson.dumps({"id": key, "prompt": "Say hello"})


def read(content: bytes) -> list[ValidLine | InvalidLine]:
    return list(read_lines("-", stdin=io.BytesIO(content)))


def valid(line: ValidLine | InvalidLine) -> ValidLine:
    assert isinstance(line, ValidLine), line
    return line


def invalid(line: ValidLine | InvalidLine) -> InvalidLine:
    assert isinstance(line, InvalidLine), line
    return line


def good(lines: list[ValidLine | InvalidLine]) -> list[tuple[int, str]]:
    return [(line.line, line.key) for line in lines if isinstance(line, ValidLine)]


def test_lines_are_numbered_and_keep_their_bytes() -> None:
    """The value is the line as it was read: inner blanks stay, and the line end is removed."""
    (line,) = read(b'\n  {"id": "a",  "prompt": "Say hello"} \n')

    assert (line.line, valid(line).value) == (2, b'  {"id": "a",  "prompt": "Say hello"} ')


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
def test_line_ends_byte_order_mark_and_empty_lines_are_no_content(end: bytes) -> None:
    """BOM, CRLF, empty lines and a missing last line end change neither numbers nor values."""
    lines = read(b"\xef\xbb\xbf" + task("a") + end + end + b"  " + end + task("b"))

    assert good(lines) == [(1, "a"), (4, "b")]
    assert [valid(line).value for line in lines] == [task("a"), task("b")]


def test_an_empty_input_has_no_lines() -> None:
    """An empty input has no lines, with or without a byte order mark."""
    assert read(b"") == read(b"\xef\xbb\xbf") == read(b"\n\r\n") == []


def test_a_bad_line_stops_nothing() -> None:
    """A bad line is reported with number, field, fix and text, and the next line is read."""
    *bad, third = read(b"{broken\n" + b'{"id": 5}\n' + task("c"))
    first, second = map(invalid, bad)

    assert (first.line, first.field, first.text) == (1, "", "{broken")
    assert (second.line, second.field, second.text) == (2, "id", '{"id": 5}')
    assert good([third]) == [(3, "c")]
    assert str(second) == "line 2: id is a whole number; write a text"


def test_bytes_that_are_not_utf8_are_reported_and_shown() -> None:
    """A line that is not UTF-8 is shown with replacement characters, as JSON needs text."""
    line = invalid(*read(b'{"id": "a", "prompt": "\xff"}\n'))

    assert "not UTF-8 at byte 24" in line.error
    assert line.text == '{"id": "a", "prompt": "\ufffd"}'


def test_a_line_of_the_largest_size_is_read() -> None:
    """A line of exactly 3 MiB is a task, even with a BOM before it and CRLF behind it."""
    head, tail = b'{"id":"a","prompt":"', b'"}'
    largest = head + b"p" * (MAX_TASK_BYTES - len(head + tail)) + tail

    assert good(read(b"\xef\xbb\xbf" + largest + b"\r\n" + task("b"))) == [(1, "a"), (2, "b")]


def test_a_line_that_is_too_large_is_never_in_memory() -> None:
    """A line of 64 MB is reported with its size, while only a few MB are in memory.

    The next line is read.
    """
    size = 64_000_000

    class Large(io.RawIOBase):
        left = size

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            count = min(len(buffer), self.left)
            buffer[:count] = b"x" * count
            self.left -= count
            return count

    tracemalloc.start()
    line = invalid(*read_lines("-", stdin=io.BufferedReader(Large())))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (line.line, line.text) == (1, None)
    assert line.error == f"is {size} bytes long"
    assert peak < 12_000_000
    assert good(read(b"x" * (MAX_TASK_BYTES * 2) + b"\n" + task("b"))) == [(2, "b")]


def test_a_packed_input_is_recognized_by_its_bytes(tmp_path: Path) -> None:
    """A packed input is recognized by its bytes, whatever its name, including appended members.

    Examples are `load - < tasks.jsonl.gz`, and a file that lost its suffix. Standard input stays
    open.
    """
    packed = gzip.compress(task("a") + b"\n") + gzip.compress(task("b"))
    path = tmp_path / "tasks.jsonl"
    path.write_bytes(packed)
    stdin = io.BufferedReader(io.BytesIO(packed))

    assert good(list(read_lines("-", stdin=stdin))) == [(1, "a"), (2, "b")]
    assert not stdin.closed
    assert good(list(read_lines(str(path), stdin=io.BytesIO()))) == [(1, "a"), (2, "b")]


def _cut(packed: bytes) -> bytes:
    return packed[:-20]


def _flipped(packed: bytes) -> bytes:
    middle = len(packed) * 9 // 10
    return packed[:middle] + bytes(64) + packed[middle + 64 :]


def _garbage(packed: bytes) -> bytes:
    return packed + b"garbage"


@pytest.mark.parametrize("harm", [_cut, _flipped, _garbage])
def test_a_damaged_gz_file_gives_what_is_before_the_damage(
    tmp_path: Path, harm: Callable[[bytes], bytes]
) -> None:
    """Lines before the damage are loaded; the damage is one bad line that names its place."""
    path = tmp_path / "tasks.jsonl.gz"
    content = b"".join(task(f"key-{number * 7919 % 100003}") + b"\n" for number in range(20_000))
    path.write_bytes(harm(gzip.compress(content)))

    *before, last = read_lines(str(path), stdin=io.BytesIO())

    assert isinstance(last, InvalidLine)
    assert "cannot be read" in last.error
    assert last.line == before[-1].line + 1 > 1000
    assert good(before[:1000])[-1][0] == 1000


def test_the_content_counts_not_the_name(tmp_path: Path) -> None:
    """A text that is named .gz is read as what it is."""
    path = tmp_path / "tasks.jsonl.gz"
    path.write_bytes(task())

    assert good(list(read_lines(str(path), stdin=io.BytesIO()))) == [(1, "a")]


def test_a_rejects_file_stands_for_its_repaired_texts() -> None:
    """A line of a rejects file is read as its text; an unrepaired one is bad again."""
    repaired = {
        "line": 7,
        "field": "id",
        "error": "e",
        "fix": "f",
        "text": task("b").decode() + "\r\n",
    }
    lines = read(
        b"\n".join(
            orjson.dumps(repaired | change) for change in ({}, {"text": "{broken"}, {"text": None})
        )
    )

    assert good(lines) == [(1, "b")]
    assert [(line.line, line.field, line.text) for line in map(invalid, lines[1:])] == [
        (2, "", "{broken"),
        (3, "text", None),
    ]
    assert valid(lines[0]).value == task("b")


def test_a_reject_whose_bytes_were_replaced_is_bad_until_they_are_repaired(tmp_path: Path) -> None:
    """A reject with replaced bytes is bad until somebody repairs them.

    Its id and prompt would differ from the input's. After another refusal, the next load refuses it
    too.
    """
    with Rejects(tmp_path / "t.rejects.jsonl") as rejects:
        for line in read(b'{"id": "caf\xe9", "prompt": "x"}\n'):
            rejects.add(invalid(line))
    once = rejects.path.read_bytes()

    (again,) = read(once)
    assert isinstance(again, InvalidLine)
    assert (again.error, again.text) == (
        "is not UTF-8 at byte 12",
        '{"id": "caf\ufffd", "prompt": "x"}',
    )
    assert isinstance(read(orjson.dumps(again))[0], InvalidLine)
    assert good(read(once.replace("\ufffd".encode(), "é".encode()))) == [(1, "café")]
    assert good(read(once.replace("\ufffd".encode(), rb"\\ufffd"))) == [(1, "caf\ufffd")]


def test_an_object_that_only_resembles_a_reject_is_a_bad_line() -> None:
    """An object with other fields than a reject is read as a task line."""
    assert "line, text" in invalid(*read(b'{"line": 1, "text": "x"}')).error


def test_a_clash_names_the_fields_that_differ() -> None:
    """A changed prompt or model can be replayed; a changed type needs another batch."""
    stored = orjson.loads(task("a"))
    model = orjson.dumps(stored | {"model": "other"})
    typed = orjson.dumps(stored | {"type": "map-reduce"})

    by_model = clashing(valid(read_line(1, task("a"))), "spring", model)
    by_type = clashing(valid(read_line(1, task("a"))), "spring", typed)

    assert by_model.error == "'a' is in batch 'spring' already with another model"
    assert "docllm replay --batch spring --model ..." in by_model.fix
    assert by_type.error.endswith("with another type")
    assert "replay" not in by_type.fix


def test_a_clash_says_that_white_space_is_content() -> None:
    """The error for an id with other content names its field, its batch and the remedy."""
    line = valid(read_line(3, task("a")))

    bad = clashing(line, "spring")

    assert (bad.line, bad.field, bad.text) == (3, "id", task("a").decode())
    assert "'spring'" in bad.error
    assert "white space" in bad.error


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("-", "stdin-20270131T180000Z"),
        ("/data/tasks.jsonl", "tasks"),
        ("tasks.jsonl.gz", "tasks"),
        ("tasks.jsonl.zst", "tasks"),
        ("tasks.json", "tasks"),
        ("tasks.csv.gz", "tasks"),
        ("tasks.parquet.rejects.jsonl", "tasks"),
        ("a.csv.jsonl", "a.csv"),
        ("tasks.jsonl.rejects.jsonl", "tasks"),
        (".jsonl", ".jsonl"),
    ],
)
def test_a_batch_is_named_after_its_file(source: str, name: str) -> None:
    """A batch is named after its file; repaired rejects belong to their original file's batch."""
    assert batch_name(source, datetime(2027, 1, 31, 18, tzinfo=UTC)) == name
