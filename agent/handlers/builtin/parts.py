"""Splits a document into parts that overlap, at borders that a reader would choose. Pure.

Sizes are in bytes of UTF-8, since tokens are estimated from bytes.
"""

from collections.abc import Iterator

# The kinds of borders, the best first. A part ends behind its border.
_BORDERS = tuple(
    border.encode() for border in ("\n\n", "\r\n\r\n", "\n", "\u3002", ". ", "? ", "! ", " ")
)
_MIN_SHARE = 0.5  # the smallest part, as a share of the largest; borders are sought from there
_MAX_OVERLAP = 0.25  # the largest overlap, as a share of a part
_CONTINUATION = range(0x80, 0xC0)  # bytes that continue a character


def split(text: str, *, part_bytes: int, overlap_bytes: int) -> list[str]:
    """Return the parts of a text, none longer than `part_bytes`.

    Each part but the first begins with the end of the one before it. Blank parts are left out.
    """
    raw = text.encode("utf-8", "surrogatepass")
    overlap = min(overlap_bytes, int(_MAX_OVERLAP * part_bytes))
    parts = (raw[start:end] for start, end in _ranges(raw, part_bytes, overlap))
    decoded = (part.decode("utf-8", "surrogatepass") for part in parts)
    return [part for part in decoded if part.strip()]


def _ranges(raw: bytes, most: int, overlap: int) -> Iterator[tuple[int, int]]:
    start = 0
    while len(raw) - start > most:
        end = _last_border(raw, start + int(_MIN_SHARE * most), start + most)
        yield start, end
        start = _first_border(raw, end - overlap, end)
    yield start, len(raw)


def _last_border(raw: bytes, low: int, high: int) -> int:
    """Return the last position from `low` to `high` that follows a border; better kinds win."""
    for border in _BORDERS:
        index = raw.rfind(border, low, high)
        if index >= 0:
            return index + len(border)
    return _character(raw, high)


def _first_border(raw: bytes, low: int, high: int) -> int:
    """Return the first index from `low` to `high` behind a border of the best kind there is."""
    for border in _BORDERS:
        index = raw.find(border, low, high)
        if index >= 0:
            return index + len(border)
    return _character(raw, low)


def _character(raw: bytes, index: int) -> int:
    """Return the index at which the character at `index` begins."""
    while index < len(raw) and raw[index] in _CONTINUATION:
        index -= 1
    return index
