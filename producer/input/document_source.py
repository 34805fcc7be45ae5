"""Looks into a document's file: its text goes into the task, or the task names the file."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docllm.producer.input.excluded_files import is_hidden
from docllm.schemas.documents.encoding import decoded_text
from docllm.schemas.documents.kind import Kind, kind_of, misnamed
from docllm.schemas.documents.limits import MAX_DOCUMENT_BYTES
from docllm.schemas.text.document_text import DocumentText, NoTextError, blank_problem

MAX_INLINE_BYTES = 256 << 10
_PART_BYTES = 1 << 20


class UnusableError(ValueError):
    """The file can be no task's document."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """A document's file: its bytes, which are read once, and their kind."""

    path: Path
    raw: bytes
    kind: Kind

    @property
    def sha256(self) -> str:
        """The digest of the bytes."""
        return hashlib.sha256(self.raw).hexdigest()

    def as_text(self, limit: int) -> dict[str, Any] | None:
        """Return the input with the text, if that is up to `limit` bytes in UTF-8."""
        if self.kind is Kind.TEXT and len(self.raw) <= limit:
            return {"text": self.raw.decode("utf-8-sig")}
        return None

    def by_uri(self) -> dict[str, Any]:
        """Return the input with the file's URI, size and SHA-256. Raises UnusableError."""
        path = self.path.resolve()
        if is_hidden([path.name]):
            fix = "rename it"
            if self.kind is Kind.TEXT:
                fix += f"; without --by-uri up to {MAX_INLINE_BYTES} bytes go into the task"
            raise UnusableError("is hidden, and agents read no hidden file", fix)
        return {"uri": path.as_uri(), "size": len(self.raw), "sha256": self.sha256}


def look_into(path: Path) -> DocumentFile:
    """Return the file of a document. Raises UnusableError, and OSError."""
    with path.open("rb") as file:
        raw = file.read(MAX_DOCUMENT_BYTES + 1)
    if len(raw) > MAX_DOCUMENT_BYTES:
        fix = f"split it into parts of at most {MAX_DOCUMENT_BYTES} bytes"
        raise UnusableError(f"is {max(path.stat().st_size, len(raw))} bytes long", fix)
    kind = _kind(raw)
    if problem := misnamed(kind, path.name):
        fix = "it may be a server's error page: get it again, or rename it to load what it says"
        raise UnusableError(problem, fix)
    return DocumentFile(path, raw, kind)


def _kind(raw: bytes) -> Kind:
    """Return the kind of a document that has content, as far as it shows without a conversion."""
    try:
        kind = kind_of(raw)
        problem = _blank_problem(raw, kind)
    except NoTextError as error:
        fix = "convert it to text, PDF or DOCX, or leave it out with a pattern"
        raise UnusableError(str(error), fix) from None
    if problem:
        raise UnusableError(problem, "remove the file, or leave it out with a pattern")
    return kind


def _blank_problem(raw: bytes, kind: Kind) -> str:
    """Return the problem of a text without content. Raises NoTextError."""
    if kind is Kind.UNICODE:
        return blank_problem(decoded_text(raw).text)
    if kind is not Kind.TEXT:
        return ""
    starts = range(0, len(raw), _PART_BYTES)
    return problem_of_text(raw[start : start + _PART_BYTES] for start in starts)


def problem_of_text(parts: Iterable[bytes]) -> str:
    """Return the problem of a text without content; take its parts up to the first letter.

    Raises NoTextError.
    """
    reader, problem = DocumentText(), blank_problem("")
    for raw in parts:
        part = reader.read(raw)
        if part and not (problem := blank_problem(part)):
            return ""
    reader.read(b"", final=True)
    return problem
