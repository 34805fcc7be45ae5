"""Text that stands for other letters is told from text that only looks like it."""

import pytest

from docllm.schemas.documents.encoding import decoded_text
from docllm.schemas.documents.kind import Kind, kind_of, misnamed
from docllm.schemas.documents.signs import is_mail, is_mailbox, seven_bit_encoding
from docllm.schemas.text.document_text import NoTextError

JAPANESE = "契約は五月一日に終了します。"
KOREAN = "계약은 오월 일일에 끝납니다."


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (JAPANESE, "iso2022_jp"),
        ("a ｱｲ 契約 b\n" * 40_000, "iso2022_jp_ext"),
        (JAPANESE + " 计算机 한국", "iso2022_jp_2"),
        (KOREAN, "iso2022_kr"),
        ("合同于五月一日结束。\nplain ~ line\n", "hz"),
        ("Grüße aus Köln, schöne Straße", "utf-7"),
        ("Привет, мир! Это текст", "utf-7"),
        ("契約は、五月一日、に終了", "utf-7"),
    ],
)
def test_text_in_seven_bits_is_decoded(text: str, encoding: str) -> None:
    """All its bytes are ASCII, and nobody could read it."""
    raw = text.encode(encoding)

    assert kind_of(raw) is Kind.OTHER_TEXT
    assert decoded_text(raw).text == text


@pytest.mark.parametrize(
    "raw",
    [
        b"\x1b[31mred\x1b[0m\x1b(B plain",
        b"a ~{ b and ~} c",
        rb"$x~{\bf y}~} z$",
        b"cost ~{5~} euro",
        b"user+tag-a@b.c, user+foo-b@b.c, user+list-c@b.c",
        b"C++ and a+b-c, x+y-z, +1-555-0100, +ABC-, +xyz-, +123-",
        b"diff +++ b/file\n+added-line\n+another-line\n+third-line\n",
        "Straße".encode(),
        b"",
    ],
)
def test_text_that_only_looks_like_it_is_left_alone(raw: bytes) -> None:
    """Colours of a terminal, TeX, addresses and sums are text as they are."""
    assert seven_bit_encoding(raw) is None
    assert kind_of(raw) is Kind.TEXT


def test_a_character_that_an_encoding_lacks_costs_itself_alone() -> None:
    """Vendors had characters of their own."""
    assert decoded_text(b"\x1b$B7@Ls-!\x1b(B x").text.startswith("契約")


MIME = b"Subject: a\nMIME-Version: 1.0\nContent-Type: text/plain\n\nb"
BOX = b"From a@b.c Thu Nov 26 10:00:00 2026\n" + MIME + b"\n\n"


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (MIME, Kind.MAIL),
        (MIME.replace(b"\n", b"\r\n"), Kind.MAIL),
        (BOX, Kind.MAIL),
        (b"Received: by x\n\tid y;\n z\n" + MIME, Kind.MAIL),
        (b"content-transfer-encoding: base64\n\nYQ==", Kind.MAIL),
        (MIME + "ü".encode("cp1252"), Kind.MAIL),
        (b"From: a\nTo: b\nSubject: c\n\nA plain mail is read as it is.", Kind.TEXT),
        (b"Note: a\nthis is no head\nMIME-Version: 1.0\n\n", Kind.TEXT),
        (b"On mail\n\nMIME-Version: 1.0\n", Kind.TEXT),
        (b"From here on, nothing\nis a mail.\nFrom there, too\n", Kind.TEXT),
        (b"{\\rtf1\\ansi a}", Kind.RTF),
        (b"{\\rtf1 \\bin3 \0\0\0}", Kind.RTF),
        (b"{\\bf TeX}", Kind.TEXT),
    ],
    ids=range(13),
)
def test_a_mail_that_is_encoded_is_told_by_its_head(raw: bytes, kind: Kind) -> None:
    """A plain mail is text that anybody reads."""
    assert kind_of(raw) is kind


def test_a_head_is_looked_for_within_bounds() -> None:
    """A long text that begins as a head does is not searched to its end."""
    assert not is_mail(b"a: b\n" * 100_000 + MIME)
    assert not is_mailbox(b"From " + b"x" * 100_000)


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (BOX * 2, r"a mailbox \(MBOX\)"),
        (b"%!PS-Adobe-3.0\n%%Title: a\n", "a PostScript file"),
        (OLE + "__substg1.0_1000001F".encode("utf-16-le"), r"an Outlook mail \(MSG\)"),
        (OLE + "WordDocument".encode("utf-16-le"), r"a Word file of before 2007 \(DOC\)"),
        (OLE + "Workbook".encode("utf-16-le"), r"\(XLS\)"),
        (OLE + "PowerPoint Document".encode("utf-16-le"), r"\(PPT\)"),
        (OLE + "EncryptedPackage".encode("utf-16-le"), "an encrypted Office file"),
        (OLE, "an Office file of before 2007, or an encrypted one"),
    ],
    ids=range(8),
)
def test_files_that_are_not_read_are_named_for_what_they_are(raw: bytes, name: str) -> None:
    """A person knows at once what to save it as."""
    with pytest.raises(NoTextError, match=name):
        kind_of(raw)


@pytest.mark.parametrize(
    ("kind", "name", "problem"),
    [
        (Kind.HTML, "a/report.PDF", "is HTML, though its name ends in .pdf"),
        (Kind.TEXT, "report.docx", "is text in UTF-8, though its name ends in .docx"),
        (Kind.DOCX, "report.pdf", ""),
        (Kind.HTML, "report.doc", ""),
        (Kind.TEXT, "pdf", ""),
        (Kind.HTML, "https://a/b?x.pdf", "is HTML, though its name ends in .pdf"),
    ],
)
def test_text_under_the_name_of_a_pdf_is_an_error_page(kind: Kind, name: str, problem: str) -> None:
    """Its answer would be about the error; a name decides nothing else."""
    assert misnamed(kind, name) == problem
