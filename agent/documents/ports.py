"""What a reader of documents needs: sources of bytes, and a conversion to text."""

from dataclasses import dataclass
from typing import Protocol

from docllm.schemas.text.document_text import ReadText


@dataclass(frozen=True, slots=True)
class Expected:
    """The size, digest and ETag of a document when its task was loaded; None if unknown.

    `size` is in bytes, `sha256` the digest in hex, `etag` the name that an object store gives to
    the content.
    """

    size: int | None = None
    sha256: str | None = None
    etag: str | None = None


class DocumentSource(Protocol):
    """Fetches documents of one kind of URI."""

    async def fetch(self, uri: str, expected: Expected) -> bytes:
        """Return the bytes of a document, at most MAX_DOCUMENT_BYTES.

        Refuses a URI that the settings do not allow, and a document of another size or ETag than
        expected. The digest is compared by the caller. Raises DocumentError.
        """
        ...


class Conversion(Protocol):
    """Turns a document's bytes into text."""

    async def text(self, raw: bytes, uri: str) -> ReadText:
        """Return the document's text. Raises DocumentError, which names `uri` without its query."""
        ...
