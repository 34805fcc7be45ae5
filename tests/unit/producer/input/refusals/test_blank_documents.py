"""A document that a line names by URI is looked into, if it can be read here."""

import os
from pathlib import Path

import orjson
import pytest

from docllm.producer.input.lines import InvalidLine, ValidLine, read_line
from docllm.producer.input.refusals.blank_documents import BlankDocuments
from docllm.producer.input.refusals.line_checks import checked


def line(uri: str) -> ValidLine | InvalidLine:
    fields = {"id": "a", "prompt": "Sum up: {document}", "input": {"uri": uri}}
    return read_line(3, orjson.dumps(fields))


def problem(root: Path, path: Path) -> str:
    """Return the error of a line that names this file, empty if it passes."""
    blank = BlankDocuments([root], own=[root / "docllm-data"])
    (result,) = checked([line(path.as_uri())], [blank.check])
    return "" if isinstance(result, ValidLine) else str(result)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b" \n" * 100_000, "has nothing but white space"),
    ],
)
def test_a_document_without_content_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    """The error names the line and its field."""
    (tmp_path / "a.txt").write_bytes(content)

    said = problem(tmp_path, tmp_path / "a.txt")

    assert said.startswith(f"line 3: input.uri names a document that {words}; leave the line out")


@pytest.mark.parametrize("content", [b"x", b"\n" * 200_000 + b"x", b"\0", b" \xff"])
def test_a_document_with_content_passes(tmp_path: Path, content: bytes) -> None:
    """A file that is no text passes too: the agent has a better error for it."""
    (tmp_path / "a.txt").write_bytes(content)

    assert problem(tmp_path, tmp_path / "a.txt") == ""


def test_what_cannot_be_read_here_passes(tmp_path: Path) -> None:
    """A missing file, a pipe, a folder, a huge file and a closed root are the agent's business."""
    (tmp_path / "root" / "folder").mkdir(parents=True)
    root = tmp_path / "root"
    os.mkfifo(root / "pipe")
    (tmp_path / "outside").touch()
    (root / "docllm-data").touch()
    with (root / "huge").open("wb") as file:
        file.truncate((32 << 20) + 1)
    paths = [root / name for name in ("missing", "pipe", "folder", "docllm-data", "huge")]

    assert [problem(root, path) for path in [*paths, tmp_path / "outside"]] == [""] * 6
