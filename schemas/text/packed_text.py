"""The compressed form in which the ledger stores longer texts, such as tracebacks."""

import zlib

MAX_CHARS = 8000


def packed(text: str) -> bytes | None:
    """Return the stored form of a text; None if it is empty."""
    return zlib.compress(text[:MAX_CHARS].encode("utf-8", "replace")) if text else None


def text_of_packed(raw: bytes | None) -> str:
    """Return a stored text; empty if there is none, or if it cannot be read.

    Whoever may write to the ledger can change it, so no more than `MAX_CHARS` are unpacked.
    """
    if not raw:
        return ""
    try:
        body = zlib.decompressobj().decompress(raw, 4 * MAX_CHARS)
    except zlib.error:
        return ""
    return body.decode("utf-8", "replace")[:MAX_CHARS]
