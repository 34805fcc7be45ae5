"""Splits a JSON array into its items, part by part: no more than one item is in memory."""

import re
from collections.abc import Iterator
from typing import IO

_PART_BYTES = 1 << 16
_BLANK = b" \t\r\n"
_BEGINS = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\[\s*+(?:\{(?!\s*+')|\]|\Z)")
_OPENING = re.compile(rb"\[")
_BETWEEN = re.compile(rb'["{}\[\],]')
_WITHIN = re.compile(rb'["{}\[\]]')
_IN_TEXT = re.compile(rb'["\\]')
_ANY = re.compile(rb".", re.DOTALL)
_ON_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")


def begins_array(head: bytes) -> bool:
    """Return whether a file with this beginning is an array of objects."""
    return _BEGINS.match(head) is not None


class ArrayItems:
    """Reads the items of an array, each as one line of JSON.

    `most` bounds the bytes of an item: a larger one is cut there.
    """

    def __init__(self, stream: IO[bytes], *, most: int) -> None:
        self._stream = stream
        self._most = most
        self._part, self._at = b"", 0
        self._item = bytearray()
        self._size = 0

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        """Yield each item with its size. Raises EOFError for an array that is cut or goes on."""
        self._find(_OPENING)
        self._taken()
        depth, is_empty = 1, True
        while depth:
            sign = self._find(_BETWEEN if depth == 1 else _WITHIN)
            if depth == 1 and sign in b",]":
                item, size = self._taken()
                if item or sign == b"," or not is_empty:
                    yield item, size
                is_empty = False
            else:
                self._keep(sign)
            if sign == b'"':
                self._read_text()
            elif sign != b",":
                depth += 1 if sign in b"{[" else -1
        self._require_end()

    def _read_text(self) -> None:
        while sign := self._find(_IN_TEXT):
            self._keep(sign)
            if sign == b'"':
                return
            self._keep(self._find(_ANY))

    def _find(self, pattern: re.Pattern[bytes]) -> bytes:
        """Return what the pattern finds next, which is one byte; keep the bytes before it."""
        is_text = pattern is _IN_TEXT
        while (found := pattern.search(self._part, self._at)) is None:
            self._keep(self._part[self._at :], is_text=is_text)
            self._part, self._at = self._stream.read(_PART_BYTES), 0
            if not self._part:
                raise EOFError("it ends in the middle of its JSON array")
        self._keep(self._part[self._at : found.start()], is_text=is_text)
        self._at = found.end()
        return found[0]

    def _keep(self, part: bytes, *, is_text: bool = True) -> None:
        if not is_text:
            part = part.translate(_ON_ONE_LINE)
        self._size += len(part)
        self._item += part[: max(0, self._most - len(self._item))]

    def _taken(self) -> tuple[bytes, int]:
        item, size = bytes(self._item).strip(_BLANK), self._size
        self._item.clear()
        self._size = 0
        return item, size

    def _require_end(self) -> None:
        rest = self._part[self._at :]
        while not rest.strip(_BLANK):
            rest = self._stream.read(_PART_BYTES)
            if not rest:
                return
        raise EOFError("there is more behind its JSON array")
