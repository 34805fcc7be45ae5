"""Makes plain text of a PDF: by PDFium, and by pypdf for a file that PDFium cannot read."""

import io
import logging

import pypdfium2
import pypdfium2.raw
from pypdf import PageObject, PdfReader

from schemas.text.document_text import NoTextError

_BETWEEN_PAGES = "\n\n"
_HYPHEN = "\ufffe"  # PDFium's sign for a hyphen at the end of a line
_ENCRYPTED = "is an encrypted PDF; save a copy without a password"


def text_of_pdf(raw: bytes) -> str:
    """Return the text of all pages. Raises NoTextError."""
    try:
        pages = _by_pdfium(raw)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == pypdfium2.raw.FPDF_ERR_PASSWORD:
            raise NoTextError(_ENCRYPTED) from None
        pages = _by_pypdf(raw)
    text = _BETWEEN_PAGES.join(pages).strip()
    if not text:
        raise NoTextError(
            f"is a PDF with {len(pages)} pages and no text in them, as scans are; "
            "run OCR on it first"
        )
    return text


def _by_pdfium(raw: bytes) -> list[str]:
    with pypdfium2.PdfDocument(raw) as document:
        return [_page_text(document, number) for number in range(len(document))]


def _page_text(document: pypdfium2.PdfDocument, number: int) -> str:
    page = document[number]
    try:
        text_page = page.get_textpage()
        try:
            text: str = text_page.get_text_range()
        finally:
            text_page.close()
    finally:
        page.close()
    return text.replace("\r\n", "\n").replace(_HYPHEN, "-\n").replace("\0", "").strip()


def _by_pypdf(raw: bytes) -> list[str]:
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(raw))
        pages = [] if reader.is_encrypted else list(map(_text_of_page, reader.pages))
    except (MemoryError, RecursionError):
        raise
    except Exception as error:
        raise NoTextError(
            f"is a broken PDF ({type(error).__name__}); save it again from a program that opens it"
        ) from error
    if reader.is_encrypted:
        raise NoTextError(_ENCRYPTED)
    return pages


def _text_of_page(page: PageObject) -> str:
    return page.extract_text().replace("\0", "").strip()
