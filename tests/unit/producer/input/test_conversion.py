"""Documents that a load converts: their text in the task, or the size of it in an estimate."""

import hashlib
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import orjson
import pytest

from docllm.producer.input import conversion, documents
from docllm.producer.input.conversion import MissingExtraError, TextSizes
from docllm.producer.input.document_source import UnusableError
from docllm.producer.input.documents import DocumentLine, DocumentReader
from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.schemas.documents.kind import Kind
from docllm.schemas.text.document_text import ReadText

PAGE = "<!doctype html><p>{}".format


class FakeConversion:
    """Answers at once, with a text or an error for all documents."""

    def __init__(self, answer: ReadText | Exception, version: str = "1") -> None:
        self.answer = answer
        self.version = version
        self.begun: list[bytes] = []

    def begin(self, raw: bytes) -> "Future[ReadText]":
        self.begun.append(raw)
        future = Future[ReadText]()
        if isinstance(self.answer, Exception):
            future.set_exception(self.answer)
        else:
            future.set_result(self.answer)
        return future


def read(folder: Path, fake: FakeConversion | None, **ways: Any) -> list[ValidLine | InvalidLine]:
    given: dict[str, Any] = {"opened": None if fake is None else lambda: fake} | ways
    reader = DocumentReader(question={"prompt": "Sum up: {document}"}, **given)
    return list(reader.read(str(folder)))


def only(lines: list[ValidLine | InvalidLine]) -> DocumentLine:
    (line,) = lines
    assert isinstance(line, DocumentLine), line
    return line


def refusal(lines: list[ValidLine | InvalidLine]) -> str:
    (line,) = lines
    assert isinstance(line, InvalidLine)
    return str(line)


def test_the_text_goes_into_the_task_with_what_it_was_made_of(tmp_path: Path) -> None:
    """The line has the text, the source's digest, the converter, and what was left out."""
    (tmp_path / "a.html").write_text(PAGE("word"))

    line = only(read(tmp_path, FakeConversion(ReadText("word", ("page 3",)))))

    digest = hashlib.sha256(PAGE("word").encode()).hexdigest()
    source = {"sha256": digest, "converter": "1", "omitted": ["page 3"]}
    assert orjson.loads(line.value)["input"] == {"text": "word", "source": source}
    assert (line.omitted, line.input_bytes) == (("page 3",), len("Sum up: {document}word"))


def test_a_text_in_utf_8_is_not_converted(tmp_path: Path) -> None:
    """It goes into its task as without --convert, so both ways to load it are the same."""
    (tmp_path / "a.txt").write_text("word")
    fake = FakeConversion(ReadText("other"))

    assert only(read(tmp_path, fake)).value == only(read(tmp_path, None)).value
    assert not fake.begun


@pytest.mark.parametrize("by_uri", [False, True])
def test_a_second_load_compares_the_source(tmp_path: Path, *, by_uri: bool) -> None:
    """The stored line stands, whatever a newer converter would make, and nothing is converted."""
    path = tmp_path / "a.html"
    path.write_text(PAGE("word"))
    first = only(read(tmp_path, None if by_uri else FakeConversion(ReadText("word"))))
    newer = FakeConversion(ReadText("Word"), version="2")

    assert only(read(tmp_path, newer, stored={"a.html": first.value}.get)).value == first.value
    assert not newer.begun
    path.write_text(PAGE("changed"))
    assert only(read(tmp_path, newer, stored={"a.html": first.value}.get)).value != first.value


@pytest.mark.parametrize(
    "stored", [b"{", b"[]", b'{"id":"a.html"}', b'{"id":"a.html","input":7}', b'{"input":{}}']
)
def test_a_stored_line_of_another_kind_is_other_content(tmp_path: Path, stored: bytes) -> None:
    """Whatever the batch has under the id, the document is converted."""
    (tmp_path / "a.html").write_text(PAGE("word"))

    line = only(read(tmp_path, FakeConversion(ReadText("word")), stored=lambda _: stored))

    assert line.task.text == "word"


def test_another_prompt_is_other_content(tmp_path: Path) -> None:
    """The stored line stands for the same question only."""
    (tmp_path / "a.html").write_text(PAGE("word"))
    first = only(read(tmp_path, FakeConversion(ReadText("word"))))
    other = first.value.replace(b"Sum up", b"Translate")

    line = only(read(tmp_path, FakeConversion(ReadText("word")), stored=lambda _: other))

    assert line.value == first.value


def test_what_is_too_large_to_convert_is_named_by_uri(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent makes the text of a large source, and of one with a large text."""
    (tmp_path / "a.html").write_text(PAGE("word"))
    long = FakeConversion(ReadText("x" * (conversion.MAX_TEXT_BYTES + 1)))
    escaped = FakeConversion(ReadText("\x01" * (1 << 20)))  # six bytes each in JSON

    assert only(read(tmp_path, long)).task.uri
    assert only(read(tmp_path, escaped)).task.uri
    monkeypatch.setattr(documents, "MAX_SOURCE_BYTES", 10)
    large = FakeConversion(ReadText("word"))
    assert only(read(tmp_path, large)).task.uri
    assert not large.begun


def test_a_document_that_cannot_be_converted_is_bad(tmp_path: Path) -> None:
    """It would be dead at the agents too; a blank text is no task either."""
    (tmp_path / "a.html").write_text(PAGE(""))

    broken = FakeConversion(UnusableError("is broken", "save it again"))
    assert refusal(read(tmp_path, broken)) == "a.html: is broken; save it again"
    assert refusal(read(tmp_path, FakeConversion(ReadText(" ")))).startswith(
        "a.html: has nothing but white space; remove the file"
    )


def test_lines_are_in_order_whichever_is_converted_first(tmp_path: Path) -> None:
    """Several are converted at once; none waits for one that comes after it."""
    for number in range(20):
        (tmp_path / f"{number:02}.html").write_text(PAGE(number))
        (tmp_path / f"{number:02}.txt").write_text("word")

    lines = read(tmp_path, FakeConversion(ReadText("word")))

    assert [line.key for line in lines if isinstance(line, ValidLine)] == sorted(
        path.name for path in tmp_path.iterdir()
    )


def test_a_document_that_no_agent_can_read_is_refused(tmp_path: Path) -> None:
    """Agents elsewhere without a folder: its task would be dead."""
    (tmp_path / "a.html").write_text(PAGE("word"))
    (tmp_path / "b.txt").write_text("word")

    bad, good = read(tmp_path, None, agents_read=False)

    assert isinstance(bad, InvalidLine)
    assert bad.error == "is HTML that an agent must read, and agents may read no folder"
    assert "load it with --convert" in bad.fix
    assert isinstance(good, ValidLine)


def test_sizes_are_learned_from_ever_fewer_documents() -> None:
    """A million documents cost two dozen conversions; each kind has a ratio of its own."""
    fake = FakeConversion(ReadText("x" * 25))
    sizes = TextSizes(lambda: fake)

    found = [sizes.of(Kind.PDF, b"p" * 100) for _ in range(1000)]

    assert set(found) == {25}
    assert len(fake.begun) == 4 + 7  # the first four, then 8, 16, ... 512
    assert sizes.of(Kind.TEXT, b"x" * 10) == 10
    assert len(fake.begun) == 11


@pytest.mark.parametrize(
    ("error", "missing"),
    [(MissingExtraError("", ""), {Kind.PDF}), (UnusableError("", ""), set())],
)
def test_a_kind_that_cannot_be_converted_counts_with_its_bytes(
    error: Exception, missing: set[Kind]
) -> None:
    """Without the extra, or with broken documents, nothing better is known."""
    fake = FakeConversion(error)
    sizes = TextSizes(lambda: fake)

    assert [sizes.of(Kind.PDF, b"p" * 100) for _ in range(3)] == [100] * 3
    assert sizes.missing == missing
    assert len(fake.begun) == (1 if missing else 3)


def test_a_sample_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """An estimate is not worth minutes."""
    monkeypatch.setattr(conversion, "_SAMPLE_S", 0.0)
    never = Future[ReadText]()
    begin: Callable[[bytes], Future[ReadText]] = lambda _raw: never  # noqa: E731 - typed
    fake = FakeConversion(ReadText(""))
    monkeypatch.setattr(fake, "begin", begin)
    sizes = TextSizes(lambda: fake)

    assert [sizes.of(Kind.PDF, b"p" * 100) for _ in range(2)] == [100] * 2
    assert never.cancelled()
