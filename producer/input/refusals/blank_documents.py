"""Refuses lines whose document, named by URI, is blank.

Only documents that agents may read are opened. A document that cannot be read here is accepted,
because an agent on another machine may be able to read and check it.
"""

import os
import stat
from collections.abc import Collection, Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from docllm.producer.input.excluded_files import resolved, root_of
from docllm.producer.input.lines import InvalidLine, ValidLine
from docllm.schemas.documents.limits import MAX_DOCUMENT_BYTES
from docllm.schemas.task.line.field_checks import is_file_uri
from docllm.schemas.text.document_text import DocumentText, NoTextError, blank_problem

_PART_BYTES = 64 << 10
_OPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class BlankDocuments:
    """Looks into the documents below `roots`, except docllm's `own` files."""

    def __init__(self, roots: Iterable[Path], *, own: Collection[Path] = ()) -> None:
        self._roots, self._own = resolved(roots), resolved(own)

    def check(self, line: ValidLine) -> ValidLine | InvalidLine:
        """Return the line; a task with a blank document becomes a bad line."""
        uri = line.task.uri
        if uri is None or not is_file_uri(uri) or line.document:  # --documents reads its files
            return line
        problem = self._problem(uri)
        if not problem:
            return line
        fix = "leave the line out, or name a document with text"
        return line.refused("input.uri", f"names a document that {problem}", fix)

    def _problem(self, uri: str) -> str:
        path = unquote(urlsplit(uri).path, errors="surrogateescape")
        if "\0" in path:
            return ""
        target = Path(os.path.realpath(path))
        if root_of(target, self._roots, self._own) is None:
            return ""
        try:
            handle = os.open(target, _OPEN)
        except OSError:
            return ""
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_DOCUMENT_BYTES:
                return ""
            return _problem_of(handle)
        except (OSError, NoTextError):
            return ""
        finally:
            os.close(handle)


def _problem_of(handle: int) -> str:
    """Return what is wrong with an open file; it is read up to its first letter."""
    reader, problem = DocumentText(), blank_problem("")
    while block := os.read(handle, _PART_BYTES):
        part = reader.read(block)
        if part and not (problem := blank_problem(part)):
            return ""
    reader.read(b"", final=True)
    return problem
