"""What a document's bytes are as text: the same, whether it is loaded into a task or read by an agent."""

import codecs


class NoTextError(ValueError):
    """The bytes are no text; the error says why."""


class DocumentText:
    """Reads the text of a document part by part: UTF-8, a byte order mark is no content, and no text holds a zero byte."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()

    def read(self, part: bytes, *, final: bool = False) -> str:
        """Return the text of the next part; `final`: nothing follows. Raises NoTextError."""
        if b"\0" in part:
            raise NoTextError("is no text: it holds a zero byte")
        try:
            return self._decoder.decode(part, final)
        except UnicodeDecodeError:
            raise NoTextError("is not UTF-8") from None
