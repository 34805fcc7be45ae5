"""The wire format between an agent and a converting process: a kind's byte, a length, and bytes.

Tested by tests/unit/agent/documents/conversion/test_converters.py.
"""

import struct
from enum import Enum

from schemas.documents.kind import Kind
from schemas.documents.limits import MAX_DOCUMENT_BYTES

HEAD = struct.Struct(">cQ")
MAX_TEXT_BYTES = MAX_DOCUMENT_BYTES  # in UTF-8, as of a document that is plain text
# What the agent says: a document of a kind follows. Each kind here has a converter in `program`.
KIND_BYTES = {Kind.PDF: b"p", Kind.DOCX: b"d", Kind.HTML: b"h", Kind.OTHER_TEXT: b"o"}
KINDS = {byte: kind for kind, byte in KIND_BYTES.items()}


class MessageKind(Enum):
    """What a process says."""

    READY = b"+"  # it takes documents
    TEXT = b"t"  # the text follows
    REFUSED = b"r"  # why the document has no text follows
    WORN = b"w"  # the document needs more memory than it may; the process ends


def said(byte: bytes, data: bytes = b"") -> bytes:
    """Return a message."""
    return HEAD.pack(byte, len(data)) + data
