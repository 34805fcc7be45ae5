"""Decodes a document's bytes, in the same way for a load and for an agent."""

import codecs
from typing import NamedTuple


class NoTextError(ValueError):
    """The bytes are not text; the error says why."""


class ReadText(NamedTuple):
    """The text of a document, and the names of its parts that hold text but were not read."""

    text: str
    omitted: tuple[str, ...] = ()


class DocumentText:
    """Reads a document's text part by part.

    Text is UTF-8. A byte order mark is not content, and a zero byte means that the document is not
    text.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()

    def read(self, part: bytes, *, final: bool = False) -> str:
        """Return the text of the next part; `final` means that no part follows.

        Raises NoTextError.
        """
        if b"\0" in part:
            raise NoTextError("is not text: it has a zero byte")
        try:
            return self._decoder.decode(part, final)
        except UnicodeDecodeError:
            raise NoTextError("is not UTF-8") from None


def blank_problem(text: str) -> str:
    """Return what is wrong with a document without any content, "" if it has some."""
    if not text:
        return "is empty"
    return "has nothing but white space" if text.isspace() else ""
