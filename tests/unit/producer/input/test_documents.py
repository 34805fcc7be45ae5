"""Documents become tasks: their ids, their texts, and the refused ones."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from docllm.producer.input.document_source import MAX_INLINE_BYTES
from docllm.producer.input.documents import DocumentReader, documents_batch, question_of
from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.schemas.documents.limits import MAX_DOCUMENT_BYTES
from docllm.schemas.errors import ConfigError
from tests.support.made_documents import made_docx, made_pdf, zipped

PROMPT = "Summarize: {document}"


def fill(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}")
    return root


def reader(*, by_uri: bool = False, **question: Any) -> DocumentReader:
    fields = {"prompt": PROMPT, "model": None, "task_type": None, "schema": None} | question
    return DocumentReader(question=question_of(**fields), by_uri=by_uri)


def read(source: object, **more: Any) -> list[ValidLine | InvalidLine]:
    leave_out, by_uri = more.pop("leave_out", ()), more.pop("by_uri", False)
    return list(reader(**more, by_uri=by_uri).read(str(source), leave_out=leave_out))


def read_valid(source: object, **more: Any) -> list[ValidLine]:
    lines = read(source, **more)
    assert all(isinstance(line, ValidLine) for line in lines), lines
    return [line for line in lines if isinstance(line, ValidLine)]


def invalid(lines: list[ValidLine | InvalidLine]) -> list[InvalidLine]:
    """Return these lines, none of which may be valid."""
    assert all(isinstance(line, InvalidLine) for line in lines), lines
    return [line for line in lines if isinstance(line, InvalidLine)]


def ids(lines: list[ValidLine | InvalidLine]) -> list[str]:
    return [line.key for line in lines if isinstance(line, ValidLine)]


def test_a_small_document_travels_in_the_task(tmp_path: Path) -> None:
    """A small document's line holds id, prompt and text, also with model and schema.

    A byte order mark is not part of the text.
    """
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfSales \xe2\x82\xac rose.\r\n")
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')

    (line,) = read_valid(tmp_path / "*.txt", model="m", schema=schema)

    assert json.loads(line.value) == {
        "id": "a.txt",
        "prompt": PROMPT,
        "input": {"text": "Sales \u20ac rose.\r\n"},
        "model": "m",
        "schema": {"type": "object"},
    }
    assert line.task.text == "Sales \u20ac rose.\r\n"


@pytest.mark.parametrize(
    ("size", "by_uri", "inline"),
    [(MAX_INLINE_BYTES, False, True), (MAX_INLINE_BYTES + 1, False, False), (1, True, False)],
)
def test_a_large_document_stays_where_it_is(
    tmp_path: Path, size: int, *, by_uri: bool, inline: bool
) -> None:
    """Above 256 KiB, or when asked to, the task names the file by URI, size and SHA-256."""
    content = b"x" * size
    path = tmp_path / "with blank & \u00e4.txt"
    path.write_bytes(content)

    (line,) = read_valid(tmp_path, by_uri=by_uri)

    assert (line.task.text is not None) == inline
    if not inline:
        assert (line.task.uri, line.task.size) == (path.as_uri(), size)
        assert line.task.sha256 == hashlib.sha256(content).hexdigest()


def test_reading_again_gives_the_same_bytes(tmp_path: Path) -> None:
    """Reading again gives the same bytes, because a second load must recognize every task."""
    fill(tmp_path, "a.txt", "b.txt")

    assert [line.value for line in read_valid(tmp_path)] == [
        line.value for line in read_valid(f"{tmp_path}/./**")
    ]


def test_a_file_that_is_no_text_is_bad_and_stops_no_other(tmp_path: Path) -> None:
    """Files that are no documents are reported by their kind, with advice; the others are loaded.

    That holds for files of any size, whatever their names say.
    """
    (tmp_path / "binary").write_bytes(b"a\0b")
    (tmp_path / "image.pdf").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    (tmp_path / "large").write_bytes(b"x" * MAX_INLINE_BYTES + b"\0")
    (tmp_path / "marked").write_bytes(b"\xff\xfea")
    (tmp_path / "sheet.docx").write_bytes(zipped({"xl/workbook.xml": b"a"}))
    (tmp_path / "space").write_bytes(" \n".encode("utf-16"))
    fill(tmp_path, "z.txt")

    *bad, last = read(tmp_path)

    assert [f"{line.document} {line.error}" for line in invalid(bad)] == [
        "binary is not text: it has a zero byte",
        "image.pdf is a PNG image, which is not read",
        "large is not text: it has a zero byte",
        "marked is not the UTF-16 of its byte order mark",
        "sheet.docx is an Excel file (XLSX), which is not read",
        "space has nothing but white space",
    ]
    assert all(line.fix and line.text is None for line in invalid(bad))
    assert ids([last]) == ["z.txt"]


@pytest.mark.parametrize(
    "content",
    [
        made_pdf(["a"]),
        made_docx("a"),
        b"<!doctype html><p>a",
        "Stra\u00dfe".encode("cp1252"),
        "Stra\u00dfe".encode("utf-16"),
    ],
    ids=["PDF", "DOCX", "HTML", "cp1252", "UTF-16"],
)
def test_a_document_that_must_be_converted_stays_where_it_is(
    tmp_path: Path, content: bytes
) -> None:
    """A small document that is no text in UTF-8 goes by URI; its kind is told by its content."""
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / ".hidden").write_bytes(content)

    (line,) = read_valid(tmp_path / "a.txt")
    (hidden,) = invalid(read(f"{tmp_path}/.h*"))

    assert (line.task.text, line.task.size) == (None, len(content))
    assert line.task.uri == (tmp_path / "a.txt").as_uri()
    assert line.task.sha256 == hashlib.sha256(content).hexdigest()
    assert (hidden.error, hidden.fix) == ("is hidden, and agents read no hidden file", "rename it")


def test_a_document_that_no_agent_reads_is_bad(tmp_path: Path) -> None:
    """A document over 32 MiB is refused unread at the load, not by an agent later."""
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MAX_DOCUMENT_BYTES + 1)

    assert [f"{line.document} {line.error}" for line in invalid(read(tmp_path))] == [
        f"huge is {MAX_DOCUMENT_BYTES + 1} bytes long"
    ]


def test_names_that_are_no_ids_are_bad(tmp_path: Path) -> None:
    """Names that cannot be ids are bad: not UTF-8, too long, or with control characters."""
    fill(tmp_path, "d" * 100 + "/" + "f" * 100, "tab\tname")
    # Pathlib has no plainer way to write it.
    with open(os.fsencode(tmp_path) + b"/bad\xff", "w"):  # noqa: PTH123
        pass

    lines = invalid(read(tmp_path))

    assert [(line.document, line.field, line.error) for line in lines] == [
        ("bad\ufffd", "", "has a name that is not UTF-8"),
        ("d" * 100 + "/" + "f" * 100, "id", "is 201 bytes long"),
        ("tab\tname", "id", "has a control character"),
    ]
    assert all(line.text is None and "rename" in line.fix for line in lines)


@pytest.mark.parametrize("by_uri", [False, True])
def test_a_document_without_content_is_bad(tmp_path: Path, *, by_uri: bool) -> None:
    """An empty or blank file would be sent and paid for, whatever its size."""
    (tmp_path / "bom.txt").write_bytes(b"\xef\xbb\xbf")
    (tmp_path / "blank.txt").write_text(" \u3000\r\n\t")
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "large.txt").write_bytes(b" " * (MAX_INLINE_BYTES + 1))
    (tmp_path / "late.txt").write_bytes(b"\n" * (MAX_INLINE_BYTES + 1) + b"x")

    *bad, late = read(tmp_path, by_uri=by_uri)

    assert [f"{line.document} {line.error}" for line in invalid(bad)] == [
        "blank.txt has nothing but white space",
        "bom.txt is empty",
        "empty.txt is empty",
        "large.txt has nothing but white space",
    ]
    assert ids([late]) == ["late.txt"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"prompt": "Summarize"},
            "--prompt has no {document}; write {document} where the input's text belongs",
        ),
        ({"prompt": ""}, "--prompt is empty"),
        ({"model": ""}, "--model is empty"),
        ({"schema": Path("none.json")}, "--schema none.json cannot be read"),
    ],
)
def test_a_wrong_question_is_a_usage_error_before_anything_is_read(
    tmp_path: Path, more: dict[str, Any], words: str
) -> None:
    """A fault that every task would have is a usage error that names the option.

    It ends the program before anything is read.
    """
    fill(tmp_path, "a.txt")

    with pytest.raises(ConfigError) as refused:
        reader(**more)

    assert words in str(refused.value)


def test_the_name_of_a_file_is_no_prompt(tmp_path: Path) -> None:
    """The error has the words that take the prompt from the file."""
    fill(tmp_path, "a.txt", "my prompt.txt")
    name = str(tmp_path / "my prompt.txt")

    with pytest.raises(ConfigError) as refused:
        reader(prompt=name)

    assert f"--prompt \"$(cat '{name}')\"" in str(refused.value)


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"type": "objekt"}', '{"maximum": 18446744073709551616}']
)
def test_a_wrong_schema_is_a_usage_error(tmp_path: Path, content: str) -> None:
    """A schema that is no JSON object or no JSON Schema, or would lose digits, is a usage error.

    The error names the option.
    """
    fill(tmp_path, "a.txt")
    (tmp_path / "schema.json").write_text(content)

    with pytest.raises(ConfigError, match="--schema"):
        reader(schema=tmp_path / "schema.json")


@pytest.mark.parametrize("source", ["none", "none/*.txt", "*.txt"])
def test_a_source_without_documents_is_a_usage_error(tmp_path: Path, source: str) -> None:
    """A missing folder and a pattern without matches are usage errors."""
    with pytest.raises(ConfigError, match=r"docs/\*\*/\*\.txt"):
        reader().read(str(tmp_path / source))


def test_the_batch_is_named_after_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch is named after the folder, a glob's fixed part, or the current folder for a dot."""
    fill(tmp_path, "reports/a.txt")
    monkeypatch.chdir(tmp_path / "reports")

    assert {
        documents_batch(source)
        for source in (str(tmp_path / "reports"), f"{tmp_path}/reports/*.txt", ".", "*.txt")
    } == {"reports"}
