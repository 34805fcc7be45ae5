"""The port through which handlers read documents by URI, and its error."""

from dataclasses import dataclass
from typing import Protocol

from docllm.agent.judge import one_line
from docllm.agent.ports.outcome import Failure
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.text.document_text import ReadText, blank_problem


class DocumentError(Exception):
    """A document that cannot be read; `failure` has a class of the judge's table."""

    def __init__(self, error_class: ErrorClass, text: str) -> None:
        super().__init__(text)
        self.failure = Failure(error_class, one_line(text))


@dataclass(frozen=True, slots=True)
class Expected:
    """The size, digest and ETag of a document when its task was loaded; None if unknown.

    `size` is in bytes, `sha256` the digest in hex, `etag` the name that an object store gives to
    the content.
    """

    size: int | None = None
    sha256: str | None = None
    etag: str | None = None


class DocumentReader(Protocol):
    """Reads documents that tasks name by URI."""

    async def read(self, uri: str, expected: Expected) -> ReadText:
        """Return the text of the document, and what was left out of it. Raises DocumentError."""
        ...


def require_content(text: str, name: str) -> str:
    """Return the text of a document; refuse one without content, since its call would be wasted.

    Raises DocumentError.
    """
    if problem := blank_problem(text):
        raise DocumentError(ErrorClass.DOCUMENT_REFUSED, f"{name} {problem}")
    return text
