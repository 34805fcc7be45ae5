"""How large a document may be."""

MAX_DOCUMENT_BYTES = 32 << 20  # an agent reads no more of one
