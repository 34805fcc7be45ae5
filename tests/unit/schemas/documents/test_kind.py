"""The kind of a document is told by its bytes, and files that are no documents are named."""

import gzip

import pytest

from docllm.schemas.documents.kind import Kind, kind_of
from docllm.schemas.text.document_text import NoTextError
from tests.support.made_documents import made_docx, made_pdf, zipped


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", Kind.TEXT),
        (b"plain", Kind.TEXT),
        ("Grüße".encode(), Kind.TEXT),
        (b"\xef\xbb\xbfmarked", Kind.TEXT),
        (b"a < b, <p>and not a page</p>", Kind.TEXT),
        (b"<!-- a note -->\n# Markdown", Kind.TEXT),
        (b"<div align=center>\n\n# Markdown", Kind.TEXT),
        (b"<headline>", Kind.TEXT),
        (b'<?xml version="1.0"?><feed/>', Kind.TEXT),
        (b"A note on %PDF-1.7 heads", Kind.TEXT),
        ("marked".encode("utf-16"), Kind.UNICODE),
        (b"\xfe\xff" + "big".encode("utf-16-be"), Kind.UNICODE),
        ("wide".encode("utf-32"), Kind.UNICODE),
        ("Straße".encode("cp1252"), Kind.OTHER_TEXT),
        ("文書です".encode("shift_jis"), Kind.OTHER_TEXT),
        ("BMW fährt".encode("cp1252"), Kind.OTHER_TEXT),
        (b"<!DOCTYPE html><title>x", Kind.HTML),
        (b"\xef\xbb\xbf\n <!-- c --> <HTML lang=en>", Kind.HTML),
        (b'<?xml version="1.0"?>\n<!DOCTYPE html PUBLIC "x">', Kind.HTML),
        ("<html><p>ß".encode("cp1252"), Kind.HTML),
        ("<html><p>x".encode("utf-16"), Kind.HTML),
        (made_pdf(["a"]), Kind.PDF),
        (b"\r\n" + made_pdf(["a"]), Kind.PDF),
        (b"\x01\x02 sent by a printer \xff" + made_pdf(["a"]), Kind.PDF),
        (made_docx("a"), Kind.DOCX),
        (made_docx("a", files={"x.bin": b"\0" * 2_000_000}), Kind.DOCX),
    ],
    ids=range(26),
)
def test_the_kind_of_a_document_is_told_by_its_bytes(raw: bytes, kind: Kind) -> None:
    """Each kind has signs of its own; what has none and is text is text."""
    assert kind_of(raw) is kind


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "a JPEG image"),
        (b"GIF89a\0\0", "a GIF image"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(8), "an Office file of before 2007"),
        (gzip.compress(b"text", mtime=0), "a gzip archive"),
        (zipped({"a.txt": b"a"}), "a ZIP archive"),
        (zipped({}), "a ZIP archive"),
        (zipped({"xl/workbook.xml": b"a"}), "an Excel file"),
        (zipped({"ppt/presentation.xml": b"a"}), "a PowerPoint file"),
        (b"\x7fELF\x02\x01\x01" + bytes(9), "a program"),
        (bytes(257) + b"ustar", "a tar archive"),
        (b"text\0text", "it has a zero byte"),
        (bytes(range(1, 256)) * 9, "control characters"),
    ],
    ids=range(13),
)
def test_a_file_that_is_no_document_is_refused_by_its_kind(raw: bytes, name: str) -> None:
    """The error says what the file is, so that a person knows what to do with it."""
    with pytest.raises(NoTextError, match=name):
        kind_of(raw)
