"""Extracts plain text from a DOCX file: its headers, its text, its notes and its footers."""

import io
import posixpath
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable

from docllm.agent.documents.conversion.docx_body import PartReader
from docllm.agent.documents.conversion.docx_package import (
    DocxPackage,
    local_name,
    new_parser,
    value_of,
)
from docllm.agent.documents.conversion.html import text_of_html
from docllm.agent.documents.conversion.mail import text_of_mail
from docllm.agent.documents.conversion.rtf import text_of_rtf
from docllm.schemas.documents.encoding import decoded_text
from docllm.schemas.documents.kind import Kind, kind_of
from docllm.schemas.documents.limits import MAX_DOCUMENT_BYTES
from docllm.schemas.text.document_text import NoTextError, ReadText
from docllm.schemas.text.wording import number_of

_MAX_CHUNKS = 100
_MAX_DEPTH = 3  # of DOCX files in each other's altChunks
_DOCUMENTS = frozenset({"altChunk", "subDoc"})
# What a part may refer to whose text belongs in the same place, and what it is called.
_FOLLOWED = {
    "chart": "chart",
    "chartEx": "chart",
    "chartUserShapes": "drawing",
    "diagramData": "diagram",
}
_TABLE = "package"  # of a chart, whose numbers stand in the chart too
_LINKED = frozenset({"OLEObject"})
_TITLES = ("heading", "title", "subtitle")
_BETWEEN = "\n\n"


_PAGES = frozenset({".htm", ".html", ".xht", ".xhtml"})
_XML = ".xml"  # Word's own format on one page, and others


def text_of_docx(raw: bytes, *, depth: int = 0) -> ReadText:
    """Return the text of a DOCX file, and what was left out of it. Raises NoTextError."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            package = DocxPackage(archive)
            document = Document(package, depth)
            text = document.text()
            omitted = [*document.lost(), *package.unread()]
            pictures = package.pictures()
    except (MemoryError, RecursionError, NoTextError):
        raise
    except Exception as error:
        raise NoTextError(
            f"is a broken DOCX file ({type(error).__name__}); save it again, or as PDF"
        ) from error
    if pictures and not (omitted or text):
        raise NoTextError(
            f"is a DOCX file with {number_of(pictures, 'picture')} and no text, as scans are; "
            "save it as PDF, and run OCR on it first"
        )
    if omitted and not text:
        raise NoTextError(
            f"is a DOCX file with its text in parts that are not read ({', '.join(omitted[:3])}); "
            "save it as PDF"
        )
    return ReadText(text, tuple(omitted))


class Document:
    """A document that is being read, and what its parts refer to."""

    def __init__(self, package: DocxPackage, depth: int) -> None:
        self._package = package
        self._depth = depth
        self._counts: Counter[str] = Counter()
        self._omitted: list[str] = []
        self._chunks = 0
        self._referred: dict[tuple[str, str], int] = {}
        self._notes: dict[tuple[str, str], str] = {}
        self.listed: frozenset[str] = frozenset()
        self.symbols = 0

    def text(self) -> str:
        """Return the whole text. Headers and footers are read once, whatever pages have them."""
        package = self._package
        main = package.main
        related = package.relations(main).values()
        by_kind = {
            kind: [found.target for found in related if found.kind == kind]
            for kind in ("styles", "header", "footer", "footnotes", "endnotes")
        }
        for part in by_kind["styles"]:
            self.listed |= self._lists(part) if package.is_xml(part) else frozenset()
        package.take(main)
        body = self._part(main, root="document")
        headers = list(dict.fromkeys(self._parts(by_kind["header"])))
        footers = list(dict.fromkeys(self._parts(by_kind["footer"])))
        for _ in self._parts(by_kind["footnotes"] + by_kind["endnotes"]):
            pass  # each note is taken one by one
        notes = "\n".join(self._numbered())
        return _BETWEEN.join(filter(None, (*headers, body, notes, *footers)))

    def lost(self) -> Iterable[str]:
        """Return what was to be read, and is not."""
        symbols = [number_of(self.symbols, "symbol")] if self.symbols else []
        counted = (number_of(count, noun) for noun, count in self._counts.items())
        return [*self._omitted, *counted, *symbols]

    def linked(self, part: str, identity: str, element: str) -> str:
        """Return the text of what an element refers to, "" if it is not read in its place."""
        relation = self._package.relations(part).get(identity)
        if element in _DOCUMENTS:
            return self._chunk(element, "" if relation is None else relation.target)
        if relation is None:
            return ""
        if element in _LINKED and not relation.target:
            self._counts["linked file"] += 1
        noun = _FOLLOWED.get(relation.kind)
        if noun is None or not self._package.take(relation.target):
            return ""
        text = self._part(relation.target)
        if text:
            for table in self._package.relations(relation.target).values():
                if table.kind == _TABLE:
                    self._package.take(table.target)
        else:
            self._counts[noun] += 1
        return text

    def refer(self, note: str, identity: str) -> str:
        """Return the mark of a note that is referred to."""
        number = self._referred.setdefault((note, identity), len(self._referred) + 1)
        return f"[{number}]"

    def note(self, note: str, identity: str, text: str) -> None:
        """Take the text of a note."""
        taken = self._notes.get((note, identity))
        self._notes[note, identity] = text if taken is None else f"{taken}\n{text}"

    def _part(self, part: str, root: str = "") -> str:
        reader = PartReader(part, self)
        self._package.parse(part, reader.parser)
        if root not in {"", reader.root}:
            raise NoTextError(f"is a broken DOCX file: its main part is no {root}")
        return reader.text()

    def _lists(self, part: str) -> frozenset[str]:
        """Return the styles of lists; a numbered heading stays a heading."""
        style, is_list = "", False
        found: set[str] = set()

        def begin(full: str, attributes: dict[str, str]) -> None:
            nonlocal style, is_list
            name, value = local_name(full), value_of(attributes, "val") or ""
            if name == "style":
                style, is_list = value_of(attributes, "styleId") or "", True
            elif name == "name":
                is_list = not value.lower().startswith(_TITLES)
            elif name == "numId" and style and is_list and value != "0":
                found.add(style)

        self._package.parse(part, new_parser(begin))
        return frozenset(found)

    def _parts(self, parts: list[str]) -> Iterable[str]:
        return (self._part(part) for part in parts if self._package.take(part))

    def _numbered(self) -> Iterable[str]:
        """Yield the notes in the order of their marks, then those without one."""
        for key, number in self._referred.items():
            if text := self._notes.pop(key, ""):
                yield f"[{number}] {text}"
        yield from filter(None, self._notes.values())

    def _chunk(self, element: str, part: str) -> str:
        """Return the text of a whole document that is a part of this one."""
        self._chunks += 1
        if self._chunks > _MAX_CHUNKS:
            raise NoTextError(
                f"is a DOCX file with more than {_MAX_CHUNKS} altChunks, of which no more are read"
            )
        name = f"{element} {self._chunks}"
        read = None
        self._package.take(part)
        if self._package.has(part) and self._depth < _MAX_DEPTH:
            read = text_of_chunk(
                self._package.archive,
                part,
                docx=lambda raw: text_of_docx(raw, depth=self._depth + 1),
            )
        if read is None:
            self._omitted.append(name)
            return ""
        self._omitted += [f"{name}: {lost}" for lost in read.omitted]
        return read.text


def text_of_chunk(
    archive: zipfile.ZipFile, part: str, *, docx: Callable[[bytes], ReadText]
) -> ReadText | None:
    """Return the text of a part; None if it is of no kind that is read here."""
    if archive.getinfo(part).file_size > MAX_DOCUMENT_BYTES:
        return None
    raw = archive.read(part)
    try:
        kind, ending = kind_of(raw), posixpath.splitext(part)[1].lower()
        if kind is Kind.HTML or ending in _PAGES:
            return text_of_html(raw)
        readers = {Kind.DOCX: docx, Kind.MAIL: text_of_mail, Kind.RTF: text_of_rtf}
        if (reader := readers.get(kind)) is not None:
            return reader(raw)
        return None if kind is Kind.PDF or ending == _XML else decoded_text(raw)
    except NoTextError:
        return None
