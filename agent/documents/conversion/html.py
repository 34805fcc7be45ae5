"""Extracts plain text from HTML: blocks get lines of their own, a table row is one line."""

from collections.abc import Iterator

from selectolax.lexbor import LexborHTMLParser, LexborNode

from docllm.schemas.documents.encoding import page_text
from docllm.schemas.text.document_text import ReadText

_UNSHOWN = frozenset("head script style template iframe object embed canvas audio video".split())
_BLOCKS = frozenset(
    "address article aside blockquote body caption dd details dialog div dl dt fieldset figcaption "
    "figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html legend li main nav ol p pre "
    "section summary table tbody tfoot thead tr ul".split()
)
_SPACED = frozenset("blockquote dl figure h1 h2 h3 h4 h5 h6 ol p pre section table ul".split())
_CELLS = frozenset({"td", "th"})
_CELL = " | "
_BULLET = "- "


def text_of_html(raw: bytes) -> ReadText:
    """Return the text of a page, without scripts and styles. Raises NoTextError."""
    source, notes = page_text(raw)
    return ReadText(text_of_source(source), notes)


def text_of_source(source: str) -> str:
    """Return the text of a page whose source is decoded."""
    parser, lines = LexborHTMLParser(source), _Lines()
    title = parser.css_first("head > title")
    if title is not None:
        lines.add(title.text())
        lines.end(blank=True)
    preformatted = 0
    for opens, node in _visits(parser.root):
        if node.is_text_node and opens:
            lines.add(node.text_content or "", as_is=preformatted > 0)
        elif node.tag == "pre":
            preformatted += 1 if opens else -1
        _begin(node, lines) if opens else _end(node, lines)
    return lines.whole()


def _begin(node: LexborNode, lines: "_Lines") -> None:
    tag = node.tag or ""
    if tag == "br":
        lines.end_one()
    elif tag in _CELLS:
        _begin_cell(node, lines)
    _end(node, lines)
    if tag == "li":
        lines.mark(_BULLET)


def _begin_cell(node: LexborNode, lines: "_Lines") -> None:
    if _follows_another(node):
        lines.mark(_CELL, breaks=0)
    else:
        row = node.parent
        lines.mark("", breaks=1 if row is not None and _follows_another(row) else 2)


def _end(node: LexborNode, lines: "_Lines") -> None:
    tag = node.tag or ""
    if tag in _BLOCKS:
        lines.end(blank=tag in _SPACED)


def _visits(root: LexborNode | None) -> Iterator[tuple[bool, LexborNode]]:
    """Yield each node when it opens and when it closes.

    This does not recurse, because a page may be nested too deeply.
    """
    node, depth = root, 0
    while node is not None:
        yield True, node
        inner = None if node.tag in _UNSHOWN else node.first_child
        if inner is not None:
            node, depth = inner, depth + 1
            continue
        yield False, node
        while depth and node is not None and node.next is None:
            node, depth = node.parent, depth - 1
            if node is not None:
                yield False, node
        node = node.next if depth and node is not None else None


def _follows_another(node: LexborNode) -> bool:
    """Return whether an element precedes this one in its parent."""
    before = node.prev
    while before is not None and not before.is_element_node:
        before = before.prev
    return before is not None


class _Lines:
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
