"""PDFs become text, page after page; scans, encrypted and broken ones are refused."""

import io
from collections.abc import Callable
from pathlib import Path

import pypdfium2
import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, NameObject

from docllm.agent.documents.conversion import pdf
from docllm.agent.documents.conversion.pdf import text_of_pdf
from docllm.schemas.text.document_text import NoTextError, ReadText
from tests.support.made_documents import made_pdf, pdf_of, pdf_stream


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
    monkeypatch.setattr(pdf, "_by_pdfium", _fails)

    assert text_of_pdf(made_pdf(["one"], ["two"])) == ("one\n\ntwo", ())


@pytest.mark.parametrize("raw", [b"%PDF-1.4", made_pdf(["a"])[:200], b"%PDF-1.7\n" + b"\xff" * 999])
def test_a_broken_pdf_is_refused(raw: bytes) -> None:
    """What no reader can read is one clear error."""
    with pytest.raises(NoTextError, match=r"a broken PDF|no text in them"):
        text_of_pdf(raw)


PICTURE = "q 500 0 0 700 50 50 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x20 EI Q"
ICON = "q 20 0 0 20 50 50 cm BI /W 1 /H 1 /CS /G /BPC 8 ID \x20 EI Q"
LINES = "50 50 m 500 700 l S"
BLANK = ""


def text(words: str) -> str:
    return f"BT /F1 12 Tf 72 720 Td ({words}) Tj ET"


def drawn_pdf(*pages: str, page: str = "", root: str = "", more: tuple[bytes, ...] = ()) -> bytes:
    """Return a PDF of pages as they are drawn; `page` and `root` are more entries of each."""
    count = len(pages)
    kids = " ".join(f"{4 + number} 0 R" for number in range(count))
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R {root} >>".encode(),
        f"<< /Type /Pages /Kids [{kids}] /Count {count} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number in range(count):
        content = 4 + count + number
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {content} 0 R "
            f"/Resources << /Font << /F1 3 0 R >> >> {page} >>".encode()
        )
    objects += [pdf_stream(content.encode("latin-1")) for content in pages]
    return pdf_of([*objects, *more])


TEXTS = [text("The first page has this."), text("The second page has that.")]


@pytest.mark.parametrize(
    ("pages", "omitted"),
    [
        ([*TEXTS, PICTURE], ("page 3",)),
        ([PICTURE, *TEXTS], ("page 1",)),
        ([*TEXTS, LINES], ("page 3",)),
        ([*TEXTS, BLANK, text("  ")], ()),
        ([*TEXTS, text("a") + ICON, text("a") + ICON], ()),
        ([*TEXTS, text("Title") + PICTURE], ()),
        ([*TEXTS, *TEXTS, PICTURE, PICTURE, BLANK, LINES], ("pages 5-6", "page 8")),
        ([*TEXTS, text("Scan 1") + PICTURE, text("scan 2") + PICTURE], ("pages 3-4",)),
        ([*TEXTS, text("3 / 3") + PICTURE], ("page 3",)),
        ([*TEXTS, "q 1 0 0 1 0 0 cm BT /F1 12 Tf ET Q"], ()),
        ([*TEXTS, "garbage ( that << ends"], ("page 3",)),
    ],
    ids=range(11),
)
def test_pages_without_text_beside_pages_with_are_named(
    pages: list[str], omitted: tuple[str, ...]
) -> None:
    """A blank page has nothing to read. A stamp on scans is no text of theirs."""
    assert text_of_pdf(drawn_pdf(*pages)).omitted == omitted


@pytest.mark.parametrize(
    ("pages", "problem"),
    [
        ([TEXTS[0], PICTURE, PICTURE], r"2 of 3 pages without text.*\(pages 2-3\); run OCR"),
        ([TEXTS[0], PICTURE, BLANK, PICTURE], r"\(page 2, page 4\)"),
        ([text("Scanned by X") + PICTURE] * 3, "3 of 3 pages without text"),
        ([PICTURE, PICTURE], "2 pages and no text in them"),
        ([BLANK], "1 page and no text in them"),
    ],
    ids=range(5),
)
def test_a_pdf_of_which_most_is_scans_is_refused(pages: list[str], problem: str) -> None:
    """An answer about its cover would say nothing of it."""
    with pytest.raises(NoTextError, match=problem):
        text_of_pdf(drawn_pdf(*pages))


def named_pdf(names: str, letters: bytes) -> bytes:
    """Return a PDF whose font says by `names` what its letters are."""
    return pdf_of(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Own /ToUnicode 6 0 R >>",
            (
                b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R "
                b"/Resources << /Font << /F1 3 0 R >> >> >>"
            ),
            pdf_stream(b"BT /F1 12 Tf 72 720 Td (" + letters + b") Tj ET"),
            pdf_stream(
                b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap "
                b"1 begincodespacerange <00> <FF> endcodespacerange "
                b"2 beginbfrange " + names.encode() + b" endbfrange endcmap end end"
            ),
        ]
    )


@pytest.mark.parametrize(
    ("names", "omitted"),
    [
        ("<41> <5A> <0041> <61> <7A> <0061>", ()),
        ("<41> <5A> <F041> <61> <7A> <F061>", None),
        ("<41> <5A> <0041> <61> <7A> <0001>", None),
        ("<41> <41> <0001> <42> <5A> <0042>", ("letters of page 1",)),
    ],
    ids=["names", "of the font's own", "controls", "one letter"],
)
def test_letters_that_a_font_does_not_name_are_no_text(
    names: str, omitted: tuple[str, ...] | None
) -> None:
    """What the font's own codes look like may be anything."""
    raw = named_pdf(names, b"A" + b"BCDEFGH" * 9 + (b"" if omitted else b"xyzuvw" * 9))
    if omitted is None:
        with pytest.raises(NoTextError, match="no text in them"):
            text_of_pdf(raw)
    else:
        assert text_of_pdf(raw).omitted == omitted


FIELDS = (
    b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (n) /TU (Name) /V (Mary) /Rect [0 0 9 9] >>",
    b"<< /Type /Annot /Subtype /Widget /FT /Btn /T (member) /V /Yes /AS /Yes /Rect [0 0 9 9] >>",
    b"<< /Type /Annot /Subtype /Widget /FT /Btn /T (other) /V /Off /AS /Off /Rect [0 0 9 9] >>",
    b"<< /Type /Annot /Subtype /FreeText /Contents (typed here) /Rect [0 0 9 9] >>",
    b"<< /Type /Annot /Subtype /Text /Contents (a remark) /Rect [0 0 9 9] >>",
    b"<< /Type /Annot /Subtype /Stamp /Rect [0 0 9 9] >>",
)
ANNOTATED = "/Annots [6 0 R 7 0 R 8 0 R 9 0 R 10 0 R 11 0 R]"
FORM = "/AcroForm << /Fields [6 0 R 7 0 R 8 0 R] >>"


def test_what_was_written_onto_a_page_is_read() -> None:
    """The values of a form are its text; comments are counted."""
    raw = drawn_pdf(text("Form"), page=ANNOTATED, root=FORM, more=FIELDS)

    assert text_of_pdf(raw) == (
        "Form\nName: Mary\nmember: Yes\ntyped here",
        ("1 comment", "1 stamp"),
    )


def test_a_scan_with_fields_on_it_is_named() -> None:
    """The fields are read, and what the scan shows is not."""
    raw = drawn_pdf(PICTURE, page=ANNOTATED, root=FORM, more=FIELDS)

    with pytest.raises(NoTextError, match="1 of 1 pages without text"):
        text_of_pdf(raw)


WAIT = text("Please wait...")
XFA = "/AcroForm << /Fields [] /XFA {} 0 R >>"


@pytest.mark.parametrize("rendering", ["", "/NeedsRendering true"])
def test_an_xfa_form_is_refused(rendering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pages only ask for another reader."""
    raw = drawn_pdf(WAIT, root=XFA.format(6) + rendering, more=(pdf_stream(b"<xdp/>"),))
    for _ in range(2):
        with pytest.raises(NoTextError, match=r"an XFA form.*print it to PDF"):
            text_of_pdf(raw)
        monkeypatch.setattr(pdf, "_by_pdfium", _fails)


def _fails(_raw: bytes) -> None:
    raise pypdfium2.PdfiumError("no")


def test_an_xfa_form_with_pages_of_its_own_is_read() -> None:
    """Older forms have both: fields on pages, and the same for a reader of XFA."""
    form = FORM.replace("/Fields", "/XFA 12 0 R /Fields")
    raw = drawn_pdf(text("Form"), page=ANNOTATED, root=form, more=(*FIELDS, pdf_stream(b"<x/>")))

    assert "Name: Mary" in text_of_pdf(raw).text


def attached(raw: bytes, change: Callable[[PdfWriter], None] = lambda _: None) -> bytes:
    writer = PdfWriter(clone_from=io.BytesIO(raw))
    writer.add_attachment("table 1.xml", b"<a/>")
    change(writer)
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


def test_attached_files_are_named_and_a_portfolio_is_refused() -> None:
    """A portfolio has no text but a page that says what it is."""
    assert text_of_pdf(attached(made_pdf(["a"]))) == ReadText("a", ("attachment table 1.xml",))

    def collect(writer: PdfWriter) -> None:
        writer.root_object[NameObject("/Collection")] = DictionaryObject()

    with pytest.raises(NoTextError, match="a PDF portfolio of 1 files"):
        text_of_pdf(attached(made_pdf(["a"]), collect))


def test_the_second_reader_names_pages_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sees pictures in a page's resources."""
    picture = "/Resources << /XObject << /I 3 0 R >> >>"
    mixed = drawn_pdf(BLANK, page=picture)
    monkeypatch.setattr(pdf, "_by_pdfium", _fails)

    with pytest.raises(NoTextError, match="1 page and no text"):
        text_of_pdf(mixed)
    assert text_of_pdf(made_pdf(["one"], [])) == ("one", ())
