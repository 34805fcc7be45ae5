"""Extracts plain text from HTML: blocks get lines of their own, a table row is one line."""

from collections.abc import Iterator
from html import escape

from selectolax.lexbor import LexborHTMLParser, LexborNode

from docllm.agent.documents.conversion.lines import Lines
from docllm.schemas.documents.encoding import page_text
from docllm.schemas.text.document_text import NoTextError, ReadText
from docllm.schemas.text.wording import number_of

_UNSHOWN = frozenset("head script style template iframe object embed canvas audio video".split())
_BLOCKS = frozenset(
    "address article aside blockquote body caption dd desc details dialog div dl dt fieldset "
    "figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr html legend li main nav ol "
    "optgroup option p pre section select summary table tbody text textarea tfoot thead title tr "
    "ul".split()
)
_SPACED = frozenset("blockquote dl figure h1 h2 h3 h4 h5 h6 ol p pre section table ul".split())
_CELLS = frozenset({"td", "th"})
_CELL = " | "
_BULLET = "- "
_AS_IS = frozenset({"pre", "textarea"})
# What shows another file, by the attribute that names it.
_FRAMES = {"iframe": "src", "frame": "src", "object": "data", "embed": "src"}
_TICKED = frozenset({"checkbox", "radio"})
_UNTYPED = frozenset("hidden button submit reset image file password color range".split())
_MARKED, _MARKED_END = "<![CDATA[", "]]>"  # text of XML, which no page may have
_HEAD_CHARS = 100
_FEW_CHARS = 100  # a page with scripts that says no more may get its text from them
_MAX_DEPTH = 5
_CUTS = (("<!--", "-->", "comment"), ("<script", "</script", "script"), ("<style", "</", "style"))
_SCRIPTED = "is a page whose text is made by its scripts; print it to PDF in a browser"


def text_of_html(raw: bytes) -> ReadText:
    """Return the text of a page, without scripts and styles. Raises NoTextError."""
    source, notes = page_text(raw)
    page = _Page()
    page.read(source)
    return ReadText(page.text(), (*notes, *page.omitted))


def text_of_source(source: str) -> str:
    """Return the text of a page whose source is decoded; an empty one if it has none."""
    page = _Page()
    page.read(source)
    return page.lines.whole()


class _Page:
    """The text of a page, with that of the pages within it, and what was left out."""

    def __init__(self) -> None:
        self.lines = Lines()
        self.omitted: list[str] = []
        self._frames: list[str] = []
        self._pictures = self._scripts = self._own_chars = self._templates = 0
        self._cut = ""

    def text(self) -> str:
        """Return the whole text, and name what it may lack. Raises NoTextError."""
        frames = list(dict.fromkeys(self._frames))
        if not self._own_chars and self._scripts:
            raise NoTextError(_SCRIPTED)
        if not self._own_chars and frames:
            raise NoTextError(f"is a page whose text is in other files: {', '.join(frames[:3])}")
        if not self._own_chars and self._pictures:
            pictures = number_of(self._pictures, "picture")
            raise NoTextError(f"is a page with {pictures} and no text; run OCR on them")
        if not self.lines.whole():
            raise NoTextError("is a page without text")
        if self._scripts and self._own_chars < _FEW_CHARS:
            self.omitted.append("what the page's scripts add")
        self.omitted += [f"frame {frame}" for frame in frames]
        self.omitted += [number_of(self._templates, "template")] if self._templates else []
        self.omitted += [self._cut] if self._cut else []
        return self.lines.whole()

    def read(self, source: str, depth: int = 0) -> None:
        """Add the text of a page's source."""
        if source[:_HEAD_CHARS].lstrip().startswith("<?xml"):
            source = _unmarked(source)
        parser, lines = LexborHTMLParser(source), self.lines
        title = parser.css_first("head > title")
        if title is not None:
            lines.add(title.text())
            lines.end(blank=True)
        as_is = unscripted = 0
        for opens, node in _visits(parser.root):
            tag = node.tag or ""
            if node.is_text_node:
                text = node.text_content or "" if opens else ""
                lines.add(text, as_is=as_is > 0)
                self._own_chars += 0 if unscripted else sum(map(str.isalnum, text))
                continue
            as_is += (1 if opens else -1) * (tag in _AS_IS)
            unscripted += (1 if opens else -1) * (tag == "noscript")
            _begin(node, lines) if opens else _end(node, lines)
            if opens:
                self._add_other(node, tag, depth)
        small = source.lower()
        for begins, ends, name in _CUTS:
            if small.rfind(begins) > small.rfind(ends):
                self._cut = f"what follows a {name} that does not end"

    def _add_other(self, node: LexborNode, tag: str, depth: int) -> None:
        """Add what an element shows beside texts, or count it."""
        if tag == "img":
            self._pictures += 1
            self._add_own(f"[{alt}]" if (alt := _attribute(node, "alt")) else "")
        elif tag == "input":
            self._add_own(_typed(node))
        elif tag == "script":
            self._scripts += 1
        elif tag == "template":
            self._add_template(node, depth)
        elif tag in _FRAMES:
            self._add_frame(node, tag, depth)

    def _add_template(self, node: LexborNode, depth: int) -> None:
        """Read what a browser shows at once; other templates are filled and shown by scripts."""
        inner = (node.html or "").partition(">")[2].removesuffix("</template>")
        if depth < _MAX_DEPTH and {"shadowrootmode", "shadowroot"} & node.attributes.keys():
            self.read(inner, depth + 1)
        else:
            self._templates += bool(LexborHTMLParser(inner).text().strip())

    def _add_frame(self, node: LexborNode, tag: str, depth: int) -> None:
        inner = _attribute(node, "srcdoc") if tag == "iframe" else ""
        file = _attribute(node, _FRAMES[tag])
        if inner and depth < _MAX_DEPTH:
            self.lines.end()
            self.read(inner, depth + 1)
            self.lines.end()
        elif inner:
            self._frames.append("within frames")
        elif file and not file.startswith(("about:", "javascript:", "data:")):
            self._frames.append(file)

    def _add_own(self, text: str) -> None:
        self.lines.add(f" {text} " if text else "")
        self._own_chars += sum(map(str.isalnum, text))


def _unmarked(source: str) -> str:
    """Return a source whose marked text is written as a page has it."""
    before, *rest = source.split(_MARKED)
    parts = (part.partition(_MARKED_END) for part in rest)
    return before + "".join(escape(text) + after for text, _, after in parts)


def _attribute(node: LexborNode, name: str) -> str:
    return (node.attributes.get(name) or "").strip()


def _typed(node: LexborNode) -> str:
    """Return what was typed into a field, or whether a box is ticked."""
    kind = _attribute(node, "type").lower()
    if kind in _TICKED:
        return "[x]" if "checked" in node.attributes else "[ ]"
    return "" if kind in _UNTYPED else _attribute(node, "value")


def _begin(node: LexborNode, lines: Lines) -> None:
    tag = node.tag or ""
    if tag == "br":
        lines.end_one()
    elif tag in _CELLS:
        _begin_cell(node, lines)
    _end(node, lines)
    if tag == "li":
        lines.mark(_BULLET)


def _begin_cell(node: LexborNode, lines: Lines) -> None:
    if _follows_another(node):
        lines.mark(_CELL, breaks=0)
    else:
        row = node.parent
        lines.mark("", breaks=1 if row is not None and _follows_another(row) else 2)


def _end(node: LexborNode, lines: Lines) -> None:
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
