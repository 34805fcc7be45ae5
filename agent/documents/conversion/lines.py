"""Joins the words of a document with markup into lines of plain text."""


class Lines:
    """Joins words into lines. White space becomes one blank, a line break, or a blank line."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._breaks = 0
        self._blank = False
        self._begun = False  # whether something was added since the last mark or the start

    def add(self, text: str, *, as_is: bool = False) -> None:
        """Add a text; with `as_is`, its white space is kept."""
        words = text.strip("\n") if as_is else " ".join(text.split())
        self._blank = self._blank or text[:1].isspace()
        if words.strip():
            self._put(words)
            self._begun = True
            self._blank = text[-1:].isspace()

    def end(self, *, blank: bool = False) -> None:
        """End the line, unless it is empty; with `blank`, leave a blank line after it."""
        if self._begun:
            self._breaks = max(self._breaks, 2 if blank else 1)

    def end_one(self) -> None:
        """Break the line once more: two breaks in a row make a blank line."""
        self._breaks = min(self._breaks + 1, 2)

    def mark(self, sign: str, *, breaks: int = 2) -> None:
        """Begin a table cell or list item with its marker, after at most `breaks` line breaks."""
        self._breaks, self._blank = min(self._breaks, breaks), False
        self._put(sign)
        self._begun = False

    def whole(self) -> str:
        """Return the text."""
        return "".join(self._parts).strip()

    def _put(self, text: str) -> None:
        if self._breaks:
            self._parts.append("\n" * self._breaks)
        elif self._blank and self._begun:
            self._parts.append(" ")
        self._breaks, self._blank = 0, False
        self._parts.append(text)
