"""The wire format between an agent and a converting process: a kind's byte, a length, and bytes."""

import struct
from enum import Enum

from docllm.schemas.documents.kind import Kind
from docllm.schemas.documents.limits import MAX_DOCUMENT_BYTES
from docllm.schemas.task.result.notes import bounded
from docllm.schemas.text.document_text import ReadText

HEAD = struct.Struct(">cQ")
MAX_TEXT_BYTES = MAX_DOCUMENT_BYTES  # in UTF-8, as of a document that is plain text
# What the agent says: a document of a kind follows. Each kind here has a converter in `program`.
KIND_BYTES = {
    Kind.PDF: b"p",
    Kind.DOCX: b"d",
    Kind.HTML: b"h",
    Kind.OTHER_TEXT: b"o",
    Kind.RTF: b"r",
    Kind.MAIL: b"m",
}
MAX_NAMES_BYTES = 16 << 10  # of as many names as `bounded` leaves
_MARK = "\x1f"  # stands in no name, because `bounded` removes it
KINDS = {byte: kind for kind, byte in KIND_BYTES.items()}


class MessageKind(Enum):
    """What a process says."""

    READY = b"+"  # it takes documents
    TEXT = b"t"  # the text follows, packed with the names of what was left out
    REFUSED = b"r"  # why the document has no text follows
    WORN = b"w"  # the document needs more memory than it may; the process ends


def text_to_bytes(read: ReadText) -> bytes:
    """Return a text and what was left out of it as bytes: a line of names, then the text."""
    names = _MARK.join(bounded(read.omitted)).encode("utf-8", "replace")
    return names + b"\n" + read.text.encode("utf-8", "replace")


def text_from_bytes(data: bytes) -> ReadText:
    """Return what `text_to_bytes` made of a text. Raises ValueError."""
    end = data.index(b"\n", 0, MAX_NAMES_BYTES)
    names = data[:end].decode()
    return ReadText(data[end + 1 :].decode(), bounded(names.split(_MARK)) if names else ())


def said(byte: bytes, data: bytes = b"") -> bytes:
    """Return a message."""
    return HEAD.pack(byte, len(data)) + data
