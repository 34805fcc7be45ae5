"""Makes plain text of a PDF: by PDFium, and by pypdf for a file that PDFium cannot read."""

import io
import logging
import re
from collections.abc import Sequence

import pypdfium2
import pypdfium2.raw
from pypdf import PageObject, PdfReader

from docllm.agent.documents.conversion.pdf_pages import PdfiumPages, ReadPage, lost_pages
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
_XFA_TYPES = frozenset({pypdfium2.raw.FORMTYPE_XFA_FULL, pypdfium2.raw.FORMTYPE_XFA_FOREGROUND})


def text_of_pdf(raw: bytes) -> ReadText:
    """Return the text of all pages, and what was left out. Raises NoTextError."""
    try:
        pages, others = _by_pdfium(raw)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == pypdfium2.raw.FPDF_ERR_PASSWORD:
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
        if form == pypdfium2.raw.FORMTYPE_XFA_FULL:
            raise NoTextError(_XFA)
        reader = PdfiumPages(document, has_form=form != pypdfium2.raw.FORMTYPE_NONE)
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
