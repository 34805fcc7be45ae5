"""The port through which handlers read documents by URI, and its error."""

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


class DocumentReader(Protocol):
    """Reads documents that tasks name by URI."""

    async def read(
        self,
        uri: str,
        *,
        size: int | None = None,
        sha256: str | None = None,
        etag: str | None = None,
    ) -> ReadText:
        """Return the text of the document, and what was left out of it.

        `size` (bytes), `sha256` and `etag` are the values that it must still have. Raises
        DocumentError.
        """
        ...


def require_content(text: str, name: str) -> str:
    """Return the text of a document; refuse one without content, since its call would be wasted.

    Raises DocumentError.
    """
    if problem := blank_problem(text):
        raise DocumentError(ErrorClass.DOCUMENT_REFUSED, f"{name} {problem}")
    return text
