"""PDFs become text, page after page; scans, encrypted and broken ones are refused."""

from pathlib import Path

import pypdfium2
import pytest
from pypdf import PdfReader, PdfWriter

from docllm.agent.documents.conversion import pdf
from docllm.agent.documents.conversion.pdf import text_of_pdf
from docllm.schemas.text.document_text import NoTextError
from tests.support.made_documents import made_pdf


def test_the_pages_become_text() -> None:
    """Lines stay lines, pages are apart, and a hyphen at the end of a line is kept."""
    assert text_of_pdf(made_pdf(["one", "a docu-", "ment"], [], ["two"])) == (
        "one\na docu-\nment\n\n\n\ntwo",
        (),
    )


def test_a_pdf_without_text_points_to_ocr() -> None:
    """A scan is no empty document, and the error says what to do."""
    with pytest.raises(NoTextError, match=r"2 pages and no text in them.*OCR"):
        text_of_pdf(made_pdf([], []))


def test_an_encrypted_pdf_is_refused(tmp_path: Path) -> None:
    """A PDF with a password is named as one, by both readers."""
    (tmp_path / "a.pdf").write_bytes(made_pdf(["secret"]))
    writer = PdfWriter(clone_from=PdfReader(tmp_path / "a.pdf"))
    writer.encrypt("password", algorithm="RC4-128")
    writer.write(tmp_path / "b.pdf")

    raw = (tmp_path / "b.pdf").read_bytes()
    with pytest.raises(NoTextError, match="an encrypted PDF"):
        text_of_pdf(raw)
    with pytest.raises(NoTextError, match="an encrypted PDF"):
        pdf._by_pypdf(raw)


def test_a_pdf_that_one_reader_cannot_read_is_read_by_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second reader gives the pages when the first one fails."""

    def fails(_raw: bytes) -> list[str]:
        raise pypdfium2.PdfiumError("no")

    monkeypatch.setattr(pdf, "_by_pdfium", fails)

    assert text_of_pdf(made_pdf(["one"], ["two"])) == ("one\n\ntwo", ())


@pytest.mark.parametrize("raw", [b"%PDF-1.4", made_pdf(["a"])[:200], b"%PDF-1.7\n" + b"\xff" * 999])
def test_a_broken_pdf_is_refused(raw: bytes) -> None:
    """What no reader can read is one clear error."""
    with pytest.raises(NoTextError, match=r"a broken PDF|no text in them"):
        text_of_pdf(raw)
