"""Documents as other programs leave them, whose kind shows beside their first bytes."""

import io
import zipfile

import pytest

from docllm.agent.documents.conversion.mail import text_of_mail
from docllm.agent.documents.conversion.rtf import text_of_rtf
from docllm.schemas.documents.encoding import decoded_text, page_text
from docllm.schemas.documents.kind import Kind, kind_of
from docllm.schemas.text.document_text import NoTextError

_MAIL = b"From: a@b\nContent-Transfer-Encoding: base64\n\nSGVsbG8=\n"


def _zip(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, raw in files.items():
            archive.writestr(name.replace("__", "/"), raw)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"a.docx": _zip(word__document=b"x")}, "a ZIP archive"),
        ({"a__word__document": b"x"}, "a ZIP archive"),
        ({"xl__workbook": b"x", "xl__a.docx": _zip(word__document=b"x")}, "an Excel file"),
    ],
    ids=["packed DOCX files", "an unpacked DOCX file", "a table with a DOCX file in it"],
)
def test_an_archive_is_named_by_its_own_files(files: dict[str, bytes], kind: str) -> None:
    with pytest.raises(NoTextError, match=f"is {kind}"):
        kind_of(_zip(**files))


@pytest.mark.parametrize("before", [b"\xef\xbb\xbf", b"\r\n"])
def test_a_mark_or_blank_line_before_rtf_or_a_mail_hides_nothing(before: bytes) -> None:
    rtf = before + b"{\\rtf1 HELLO}"

    assert (kind_of(rtf), kind_of(before + _MAIL)) == (Kind.RTF, Kind.MAIL)
    assert text_of_rtf(rtf).text == "HELLO"
    assert text_of_mail(before + _MAIL).text.endswith("Hello")


@pytest.mark.parametrize(
    "head",
    [
        b"From:a\nContent-Type:multipart/mixed;boundary=x\n\n",
        b"From: a\nContent-Type:\n multipart/mixed;\n boundary=x\n\n",
        b"From: a\nContent-Type: text/html\n\n",
    ],
)
def test_the_head_of_a_mail_may_be_folded_or_without_blanks(head: bytes) -> None:
    assert kind_of(head + b"text") is Kind.MAIL


@pytest.mark.parametrize(
    "text", [b"name: x\nmime-version: 1.0\n\nrest", b"Title: x\nContent-Type: multipart/x\n\nrest"]
)
def test_names_with_colons_alone_make_no_mail(text: bytes) -> None:
    assert kind_of(text) is Kind.TEXT


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_read(encoding: str) -> None:
    raw = "Gr\u00fc\u00dfe aus K\u00f6ln\r\n".encode(encoding)

    assert kind_of(raw) is Kind.UNICODE
    assert decoded_text(raw).text == "Gr\u00fc\u00dfe aus K\u00f6ln\r\n"


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"\x04%!PS-Adobe-3.0\n", "PostScript"),
        (b"\x1b%-12345X@PJL\r\n", "printer"),
        (b"-----BEGIN PGP MESSAGE-----\n", "encrypted"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"JVBERi0xLjcKJcOkw7zDtsOf", "a PDF in Base64; decode it"),
        (b'{"url": "https://docs.google.com/document/d/x"}', "a link to Google Docs"),
        (b"AT&TFORM\0\0\1\0DJVM", "a DjVu document"),
        (bytes(60) + b"BOOKMOBI", "a Kindle book"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "VisioDocument".encode("utf-16-le"), "a Visio file"),
        (_zip(Index__Document=b"x"), "a file of Pages, Numbers or Keynote"),
    ],
)
def test_a_text_that_nobody_can_read_is_named(raw: bytes, name: str) -> None:
    with pytest.raises(NoTextError, match=name):
        kind_of(raw)


def test_a_page_is_read_as_what_it_is_and_not_as_it_declares() -> None:
    utf8 = "<html><meta charset=iso-8859-1>Gr\u00fc\u00dfe".encode()
    in_comment = b"<html><!-- <meta charset=koi8-r> --><meta charset=x-sjis>\x93\xfa\x96{"

    assert page_text(utf8).text.endswith("Gr\u00fc\u00dfe")
    assert page_text(in_comment).text.endswith("\u65e5\u672c")
