"""Makes plain text of a PDF: by PDFium, and by pypdf for a file that PDFium cannot read.

Pages are named that show text which they do not hold, as scans do.
"""

import io
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_float, c_ushort, cast, create_string_buffer
from typing import Any, NamedTuple

import pypdfium2
from pypdf import PageObject, PdfReader
from pypdfium2 import raw as pdfium

from docllm.schemas.text.document_text import NoTextError, ReadText
from docllm.schemas.text.wording import number_of

_BETWEEN_PAGES = "\n\n"
# What programs write onto a blank page: states that are saved and restored, and numbers.
_BLANK_PAGE = re.compile(
    rb"(?>(?:[\s\d.+\-\[\]<>]++|/\w++|(?:BT|ET|T[fLdDmcwzsr*]|[BE]MC|BDC|cm|ri|gs|re|RG|rg|SCN?|scn?"
    rb"|CS|cs|W\*?|[qQwJjMdignG])(?![\w*]))*)"
)
_ENCRYPTED = "is an encrypted PDF; save a copy without a password"
_XFA = "is an XFA form, whose text is not in its pages; print it to PDF"
_XFA_TYPES = frozenset({pdfium.FORMTYPE_XFA_FULL, pdfium.FORMTYPE_XFA_FOREGROUND})
_HYPHEN = "\ufffe"  # PDFium's sign for a hyphen at the end of a line
_STAMP_CHARS = 200  # a text so short may be a stamp on the picture of a page
_LOOKED_AT = 10_000  # objects of a page
_NO_LETTERS = re.compile(r"[\W\d_]+")
_PICTURES = frozenset({pdfium.FPDF_PAGEOBJ_IMAGE, pdfium.FPDF_PAGEOBJ_FORM})
_DRAWN = _PICTURES | {pdfium.FPDF_PAGEOBJ_PATH, pdfium.FPDF_PAGEOBJ_SHADING}
_NOTES = frozenset(
    {
        pdfium.FPDF_ANNOT_TEXT,
        pdfium.FPDF_ANNOT_HIGHLIGHT,
        pdfium.FPDF_ANNOT_UNDERLINE,
        pdfium.FPDF_ANNOT_SQUIGGLY,
        pdfium.FPDF_ANNOT_STRIKEOUT,
        pdfium.FPDF_ANNOT_CARET,
    }
)
_OWN = re.compile("[\ue000-\uf8ff]")  # they mean something else in each font
_CONTROL = re.compile("[\x01-\x08\x0e-\x1f]")
_BULLETS = 0.03  # so few letters of a font's own are marks
_ASKED_LETTERS = 500  # of a page
_MAX_NAMELESS = 0.2  # above this share, nobody can read a page
_OFF = "Off"  # the value of a box that is not ticked


class ReadPage(NamedTuple):
    """A page's text.

    `drawn`: it shows something and holds no text; `pictured`: it is mostly pictures; `nameless`:
    its font does not say what some letters are; `empty`: nothing is found on it.
    """

    text: str
    drawn: bool = False
    pictured: bool = False
    nameless: bool = False
    empty: bool = False


def text_of_pdf(raw: bytes) -> ReadText:
    """Return the text of all pages, and what was left out. Raises NoTextError."""
    try:
        pages, others = _by_pdfium(raw)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == pdfium.FPDF_ERR_PASSWORD:
            raise NoTextError(_ENCRYPTED) from None
        pages, others = _by_pypdf(raw), []
    lost = sorted({*lost_pages(pages), *_unfound(raw, pages)})
    text = _BETWEEN_PAGES.join(page.text for page in pages).strip()
    if not text:
        raise NoTextError(
            f"is a PDF with {number_of(len(pages), 'page')} and no text in them, as scans are; "
            "run OCR on it first"
        )
    omitted = _ranges(lost)
    read = sum(bool(page.text) for page in pages) - sum(bool(pages[at].text) for at in lost)
    if len(lost) > read:
        raise NoTextError(
            f"is a PDF with {len(lost)} of {len(pages)} pages without text, as scans are "
            f"({', '.join(omitted)}); run OCR on it first"
        )
    partly = _ranges([number for number, page in enumerate(pages) if page.nameless])
    return ReadText(text, (*omitted, *(f"letters of {name}" for name in partly), *others))


def _by_pdfium(raw: bytes) -> tuple[list[ReadPage], list[str]]:
    """Return the pages, and what else the file holds."""
    with pypdfium2.PdfDocument(raw) as document:
        form = document.get_formtype()
        if form == pdfium.FORMTYPE_XFA_FULL:
            raise NoTextError(_XFA)
        reader = PdfiumPages(document, has_form=form != pdfium.FORMTYPE_NONE)
        pages = [reader.page(number) for number in range(len(document))]
        if form in _XFA_TYPES and not reader.fields:
            raise NoTextError(_XFA)
        if (attached := reader.attachments()) and _is_portfolio(raw):
            raise NoTextError(
                f"is a PDF portfolio of {len(attached)} files; extract them, and load these"
            )
        return pages, attached + reader.comments()


def _unfound(raw: bytes, pages: Sequence[ReadPage]) -> list[int]:
    """Return the pages on which nothing is found, though they are to show something."""
    empty = [number for number, page in enumerate(pages) if page.empty]
    try:
        reader = _reader(raw) if empty else None
        return [n for n in empty if reader is not None and _is_damaged(reader.pages[n])]
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 - pypdf fails in many ways on a file that is damaged
        return empty


def _is_damaged(page: PageObject) -> bool:
    """Return whether a page is none, or its content cannot be read or would paint something."""
    if page.get("/Type") != "/Page":
        return True
    parts = page.get("/Contents")
    content = page.get_contents()
    if content is None:
        return parts is not None and not isinstance(parts, list)
    data = content.get_data()
    return bool(data.strip()) and _BLANK_PAGE.fullmatch(data) is None


def _is_portfolio(raw: bytes) -> bool:
    """Return whether a PDF only shows the files in it."""
    try:
        return "/Collection" in _reader(raw).root_object
    except (MemoryError, RecursionError):
        raise
    except Exception:  # noqa: BLE001 - PDFium has read it, and pypdf fails in many ways
        return False


def _by_pypdf(raw: bytes) -> list[ReadPage]:
    try:
        reader = _reader(raw)
        pages = [] if reader.is_encrypted else list(map(_page_by_pypdf, reader.pages))
        is_xfa = not reader.is_encrypted and "/XFA" in reader.root_object.get("/AcroForm", {})
        is_xfa = is_xfa and not any("/Annots" in page for page in reader.pages)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        raise NoTextError(
            f"is a broken PDF ({type(error).__name__}); save it again from a program that opens it"
        ) from error
    if reader.is_encrypted or is_xfa:
        raise NoTextError(_ENCRYPTED if reader.is_encrypted else _XFA)
    return pages


def _reader(raw: bytes) -> PdfReader:
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    return PdfReader(io.BytesIO(raw))


def _page_by_pypdf(page: PageObject) -> ReadPage:
    text = page.extract_text().replace("\0", "").strip()
    return ReadPage(text, drawn=not text and "/XObject" in page.get("/Resources", {}))


def _ranges(numbers: Sequence[int]) -> list[str]:
    """Return the names of pages, of which the first has the number 0: `page 3`, `pages 5-12`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [
        f"page {first + 1}" if first == last else f"pages {first + 1}-{last + 1}"
        for first, last in runs
    ]


def lost_pages(pages: Sequence[ReadPage]) -> list[int]:
    """Return the pages that show more than their text, as scans do, counted from 0.

    The text of a scan may be a stamp: it has no letters, or other scans have it too.
    """
    stamps = Counter(_stamp(page) for page in pages if page.pictured)
    return [
        number
        for number, page in enumerate(pages)
        if page.drawn or (page.pictured and (not _stamp(page) or stamps[_stamp(page)] > 1))
    ]


def _stamp(page: ReadPage) -> str:
    return _NO_LETTERS.sub("", page.text).casefold()


class PdfiumPages:
    """Reads the pages of an open document one after another.

    `fields` counts the fields of its form that were met.
    """

    def __init__(self, document: pypdfium2.PdfDocument, *, has_form: bool) -> None:
        self._document = document
        if has_form:
            document.init_forms()
        self.fields = 0
        self._notes = self._stamps = 0

    def page(self, number: int) -> ReadPage:
        """Return a page with the values of the form on it."""
        page = self._document[number]
        try:
            text_page = page.get_textpage()
            try:
                shown: str = text_page.get_text_range()
                nameless = _nameless_share(text_page, shown)
            finally:
                text_page.close()
            text = shown.replace("\r\n", "\n").replace(_HYPHEN, "-\n").replace("\0", "").strip()
            # Each button of a group has the value of the group.
            written = (
                dict.fromkeys(self._written(page)) if pdfium.FPDFPage_GetAnnotCount(page) else {}
            )
            whole = "\n".join(filter(None, (text, *written)))
            if nameless > _MAX_NAMELESS:
                return ReadPage("\n".join(written), drawn=True)
            if len(text) > _STAMP_CHARS:
                return ReadPage(whole, nameless=nameless > 0)
            # Letters that no program can name are drawn, too.
            drawn, pictured = _drawn(page)
            drawn = not text and (drawn or "\0" in shown)
            pictured = pictured and len(whole) <= _STAMP_CHARS
            empty = not whole and pdfium.FPDFPage_CountObjects(page) == 0
            return ReadPage(whole, drawn, pictured, nameless > 0, empty)
        finally:
            page.close()

    def attachments(self) -> list[str]:
        """Return the files in the document, by their names."""
        count = self._document.count_attachments()
        return [f"attachment {self._document.get_attachment(n).get_name()}" for n in range(count)]

    def comments(self) -> list[str]:
        """Return how many comments and stamps the pages have."""
        counts = ((self._notes, "comment"), (self._stamps, "stamp"))
        return [number_of(count, noun) for count, noun in counts if count]

    def _written(self, page: pypdfium2.PdfPage) -> Iterator[str]:
        """Yield what was written onto the page: the values of fields, and free texts."""
        for index in range(pdfium.FPDFPage_GetAnnotCount(page)):
            with _annotation(page, index) as annotation:
                kind = pdfium.FPDFAnnot_GetSubtype(annotation)
                if kind == pdfium.FPDF_ANNOT_WIDGET:
                    self.fields += 1
                    yield from self._field(annotation)
                elif kind == pdfium.FPDF_ANNOT_FREETEXT:
                    yield _contents(annotation)
                elif kind == pdfium.FPDF_ANNOT_STAMP:
                    self._stamps += 1
                elif kind in _NOTES and _contents(annotation):
                    self._notes += 1

    def _field(self, annotation: Any) -> Iterator[str]:
        form = self._document.formenv
        if form is None:
            return
        value = _string(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation)
        if value and value != _OFF:
            name = _string(pdfium.FPDFAnnot_GetFormFieldAlternateName, form, annotation)
            name = name or _string(pdfium.FPDFAnnot_GetFormFieldName, form, annotation)
            yield f"{name}: {value}" if name else value


def _nameless_share(page: Any, shown: str) -> float:
    """Return which share of a page's letters nobody can tell, by some of them."""
    count = pdfium.FPDFText_CountChars(page)
    asked = range(0, count, max(1, count // _ASKED_LETTERS))
    unmapped = sum(pdfium.FPDFText_HasUnicodeMapError(page, index) == 1 for index in asked)
    own = len(_OWN.findall(shown)) / max(1, len(shown))
    controls = len(_CONTROL.findall(shown)) / max(1, len(shown))
    own = controls + own * (own > _BULLETS)
    return max(float(unmapped) / max(1, len(asked)), own)


@contextmanager
def _annotation(page: pypdfium2.PdfPage, index: int) -> Iterator[Any]:
    annotation = pdfium.FPDFPage_GetAnnot(page, index)
    try:
        yield annotation
    finally:
        pdfium.FPDFPage_CloseAnnot(annotation)


def _contents(annotation: Any) -> str:
    return _string(pdfium.FPDFAnnot_GetStringValue, annotation, b"Contents")


def _string(read: Callable[..., int], *of: Any) -> str:
    """Return a text that PDFium writes into a buffer, in UTF-16 with a zero at its end."""
    size = read(*of, None, 0)
    buffer = create_string_buffer(size)
    read(*of, cast(buffer, POINTER(c_ushort)), size)
    return buffer.raw.decode("utf-16-le", "replace").replace("\0", "").replace("\r", "\n").strip()


def _drawn(page: pypdfium2.PdfPage) -> tuple[bool, bool]:
    """Return whether a page shows anything but text, and whether half of it or more is pictures."""
    drawn, area = False, 0.0
    for index in range(min(pdfium.FPDFPage_CountObjects(page), _LOOKED_AT)):
        item = pdfium.FPDFPage_GetObject(page, index)
        kind = pdfium.FPDFPageObj_GetType(item)
        drawn = drawn or kind in _DRAWN
        if kind in _PICTURES:
            left, bottom, right, top = (c_float() for _ in range(4))
            pdfium.FPDFPageObj_GetBounds(item, byref(left), byref(bottom), byref(right), byref(top))
            area += abs(right.value - left.value) * abs(top.value - bottom.value)
    return drawn, area > page.get_width() * page.get_height() / 2
