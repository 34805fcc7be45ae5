"""DOCX files become text with their tables; archives that would fill the memory are refused."""

import socket
from collections.abc import Callable

import pytest

from docllm.agent.documents.conversion.docx import text_of_docx
from docllm.schemas.text.document_text import NoTextError
from tests.support.made_documents import (
    linked,
    linked_image,
    made_docx,
    paragraph,
    related,
    table,
    zipped,
)

LARGE = 65 << 20  # bytes: more than all XML of a document may have


def test_paragraphs_and_tables_become_text_in_their_order() -> None:
    """A table stands where the author put it, with a line for each row."""
    body = table(["Name", "Sum"], ["Ada", "7 €"])
    assert (
        text_of_docx(made_docx("Before & then", body=body)).text
        == "Before & then\n\nName | Sum\nAda | 7 €"
    )


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (lambda: b"PK\x03\x04word/document.xml", "a broken DOCX file"),
        (lambda: made_docx("a")[:-40], "a broken DOCX file"),
        (lambda: zipped({"word/document.xml": b"<a/>"}), "a broken DOCX file"),
        (
            lambda: made_docx("a", files={"word/styles.xml": bytes(LARGE)}),
            "at most 10000 files with",
        ),
        (
            lambda: made_docx("a", files={f"{n}": b"" for n in range(10_001)}),
            "at most 10000 files with",
        ),
    ],
)
def test_a_file_that_is_broken_or_too_large_is_refused(
    made: Callable[[], bytes], problem: str
) -> None:
    """The error says what is wrong before anything large is unpacked."""
    with pytest.raises(NoTextError, match=problem):
        text_of_docx(made())


@pytest.mark.parametrize("name", ["word/document.bin", "word/media/image1.png"])
@pytest.mark.parametrize("blanks", ["", "\ufeff", " " * 100])
@pytest.mark.parametrize(("encoding", "width"), [("utf-8", 1), ("utf-16", 2), ("utf-16-be", 2)])
def test_a_document_with_another_name_is_no_larger(
    name: str, blanks: str, encoding: str, width: int
) -> None:
    """Relationships may name any part as the document."""
    large = (f"{blanks}<w:document" + " " * (LARGE // width)).encode(encoding)

    with pytest.raises(NoTextError, match="at most 10000 files with"):
        text_of_docx(made_docx("a", files={name: large}))


def test_media_is_never_unpacked() -> None:
    """A small text with large images is read."""
    media = {"word/media/image1.png": b"\x89PNG", "word/embeddings/1.bin": b"PK"}
    raw = made_docx("small", files={name: head + bytes(99 << 20) for name, head in media.items()})

    assert text_of_docx(raw) == ("small", ("1 embedded file",))


def test_an_image_elsewhere_is_never_fetched() -> None:
    """A document that names an image by an address, or by a file, reaches neither."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/x.png"
        raw = made_docx(
            "before",
            body=linked_image("r1") + linked_image("r2") + paragraph("after"),
            files={"word/_rels/document.xml.rels": linked(r1=address, r2="file:///etc/hostname")},
        )

        assert text_of_docx(raw) == ("before\n\nafter", ())
        with pytest.raises(BlockingIOError):
            listener.accept()


MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
RELATIONS = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
CHUNK = f'<w:altChunk {RELATIONS} r:id="c1"/>'
MHTML = (
    b'MIME-Version: 1.0\r\nContent-Type: multipart/related; type="text/html"; boundary="b"\r\n\r\n'
    b'--b\r\nContent-Type: text/html; charset="utf-8"\r\n'
    b"Content-Transfer-Encoding: quoted-printable\r\n\r\n"
    b"<html><body><p>in the =\r\nchunk =C3=BC</p></body></html>\r\n--b--\r\n"
)


def with_chunk(part: str, content: bytes, *paragraphs: str) -> bytes:
    """Return a DOCX with an altChunk after its paragraphs."""
    files = {"word/_rels/document.xml.rels": related(c1=f"/word/{part}"), f"word/{part}": content}
    return made_docx(*paragraphs, body=CHUNK + paragraph("after"), files=files)


@pytest.mark.parametrize(
    ("part", "content", "text"),
    [
        ("a.mht", MHTML, "in the chunk ü"),
        ("a.html", "<p>in a page ü".encode(), "in a page ü"),
        ("a.htm", "<html><meta charset=cp1252><p>ü".encode("cp1252"), "ü"),
        ("a.txt", b"plain", "plain"),
        ("a.rtf", rb"{\rtf1 in RTF}", "in RTF"),
        ("a.docx", made_docx("in a DOCX"), "in a DOCX"),
        ("b.docx", with_chunk("c.docx", made_docx("deep")), "deep\n\nafter"),
    ],
)
def test_an_alternative_chunk_is_read_in_its_place(part: str, content: bytes, text: str) -> None:
    """Report generators write whole documents into one, of any kind that Word takes."""
    read = text_of_docx(with_chunk(part, content, "before"))

    assert read == (f"before\n\n{text}\n\nafter", ())


@pytest.mark.parametrize(
    ("part", "content"),
    [("a.xml", b"<w:p>x</w:p>"), ("a.bin", b"a\0b"), ("a.mht", b"\x89PNG\r\n\x1a\n\0")],
)
def test_a_chunk_that_cannot_be_read_is_named(part: str, content: bytes) -> None:
    """The rest of the document is read; the chunk's number says where to look."""
    assert text_of_docx(with_chunk(part, content)) == ("after", ("altChunk 1",))


def test_a_chunk_outside_the_file_or_missing_is_named() -> None:
    """Nothing is fetched."""
    files = {"word/_rels/document.xml.rels": related(external=True, c1="http://127.0.0.1:9/a.html")}

    assert text_of_docx(made_docx("a", body=CHUNK, files=files)) == ("a", ("altChunk 1",))
    assert text_of_docx(made_docx("a", body=CHUNK)) == ("a", ("altChunk 1",))


def test_a_document_of_chunks_that_cannot_be_read_is_refused() -> None:
    """It is not empty, and the error names the part."""
    with pytest.raises(NoTextError, match=r"parts that are not read \(altChunk 1\)"):
        text_of_docx(made_docx(body=CHUNK))


def test_a_document_of_pictures_alone_points_to_ocr() -> None:
    """It is not empty, and the error says what to do."""
    raw = made_docx(files={"word/media/image1.png": b"a", "word/media/image2.png": b"a"})

    with pytest.raises(NoTextError, match=r"2 pictures and no text.*OCR"):
        text_of_docx(raw)


def test_chunks_are_bounded() -> None:
    """One part may be named many times, and a document may be a chunk of its own kind."""
    with pytest.raises(NoTextError, match="more than 100 altChunks"):
        text_of_docx(made_docx(body=CHUNK * 101))
    inner = made_docx("innermost")
    for _ in range(5):
        inner = with_chunk("a.docx", inner)

    lost = ("altChunk 1: altChunk 1: altChunk 1: altChunk 1",)
    assert text_of_docx(inner) == ("after\n\nafter\n\nafter\n\nafter", lost)


def math(inner: str) -> str:
    return f"<w:p><m:oMathPara {MATH}><m:oMath>{inner}</m:oMath></m:oMathPara></w:p>"


def run(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


LAST = f"<m:sup/><m:e>{run('i')}</m:e></m:nary>"
ROW = f"<m:mr><m:e>{run('1')}</m:e><m:e>{run('2')}</m:e></m:mr>"


@pytest.mark.parametrize(
    ("equation", "text"),
    [
        (run("E=m") + run("c²"), "E=mc²"),
        (f"<m:f><m:num>{run('a+b')}</m:num><m:den>{run('2')}</m:den></m:f>", "(a+b)/2"),
        (f"<m:sSup><m:e>{run('x')}</m:e><m:sup>{run('n+1')}</m:sup></m:sSup>", "x^(n+1)"),
        (f"<m:sSub><m:e>{run('x')}</m:e><m:sub>{run('12')}</m:sub></m:sSub>", "x_12"),
        (f"<m:rad><m:deg/><m:e>{run('x+y')}</m:e></m:rad>", "√(x+y)"),
        (f"<m:d><m:e>{run('q')}</m:e></m:d>", "(q)"),
        (
            f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub>{run("i=1")}</m:sub>{LAST}',
            "∑_(i=1)i",
        ),
        (f"<m:m>{ROW}{ROW}</m:m>", "[1, 2; 1, 2]"),
    ],
)
def test_an_equation_is_one_line(equation: str, text: str) -> None:
    """A power stays a power: its text alone would be another number."""
    assert text_of_docx(made_docx("a", body=math(equation))) == (f"a\n\n{text}", ())
