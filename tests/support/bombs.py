"""Documents that are made to fill the memory, to take for ever, or to crash what reads them."""

import bz2
import gzip
import io
import struct
import zipfile
import zlib
from collections.abc import Iterator

from tests.support.made_documents import (
    made_docx,
    made_pdf,
    pdf_of,
    pdf_stream,
    related,
    zipped,
)

MEGABYTE = 1 << 20
_PAGE = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>"
_TREE = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
_ROOT = b"<< /Type /Catalog /Pages 2 0 R >>"
_DTD = '<!DOCTYPE d [<!ENTITY a0 "aaaaaaaaaa">{}]>'


def bombs() -> Iterator[tuple[str, bytes]]:
    """Yield more than fifty bombs with their names."""
    yield from _archives()
    yield from _docx()
    yield from _pdf()
    yield from _pages()
    yield from _texts()
    yield from _mails()


def _zeros(megabytes: int) -> bytes:
    """Return so many compressed zeros: one megabyte of them, repeated."""
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    block = packer.compress(bytes(MEGABYTE)) + packer.flush(zlib.Z_FULL_FLUSH)
    end = zlib.compressobj(9, wbits=-zlib.MAX_WBITS).flush()
    checksum = ((megabytes * MEGABYTE) % 65521 << 16) + 1  # Adler-32, of zeros alone
    return b"\x78\xda" + block * megabytes + end + struct.pack(">I", checksum)


def _big_docx(megabytes: int) -> bytes:
    """Return a DOCX whose text is one letter, many times; it is never whole in memory."""
    buffer = io.BytesIO(made_docx("a"))
    with (
        zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("word/styles.xml", "w", force_zip64=True) as file,
    ):
        for _ in range(megabytes):
            file.write(b"a" * MEGABYTE)
    return buffer.getvalue()


def _lying(raw: bytes) -> bytes:
    """Return an archive whose files claim to unpack to 100 bytes."""
    changed = bytearray(raw)
    for sign, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = changed.find(sign)
        while start >= 0:
            changed[start + place : start + place + 4] = struct.pack("<I", 100)
            start = changed.find(sign, start + 4)
    return bytes(changed)


def _archives() -> Iterator[tuple[str, bytes]]:
    inner = zipped({"a": bytes(10 * MEGABYTE)})
    for _ in range(5):
        inner = zipped({f"{number}.zip": inner for number in range(10)})
    yield "nested.zip", inner
    yield "nested.docx", zipped({"word/document.xml": inner})
    yield "gzip.txt", gzip.compress(bytes(10 * MEGABYTE))
    yield "bzip2.txt", bz2.compress(bytes(10 * MEGABYTE))
    yield "sheet.xlsx", zipped({"xl/workbook.xml": bytes(MEGABYTE)})
    yield "empty.zip", zipped({})


def _docx() -> Iterator[tuple[str, bytes]]:
    yield "700 MB.docx", _big_docx(700)
    yield "lying.docx", _lying(made_docx("a" * 30_000_000))
    yield "many files.docx", made_docx("a", files={f"word/{n}.xml": b"" for n in range(20_000)})
    yield "paragraphs.docx", made_docx(*[""] * 1_500_000)
    laughs = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
    for name, entities, body in (
        ("laughs", laughs, "&a11;"),
        ("blow-up", f'<!ENTITY b "{"b" * 100_000}">', "&b;" * 5000),
        ("file", '<!ENTITY f SYSTEM "file:///etc/passwd">', "&f;"),
        ("parameter", '<!ENTITY % p SYSTEM "http://127.0.0.1:9/x"> %p;', ""),
    ):
        content = f'{_DTD.format(entities)}<w:document xmlns:w="x"><w:t>{body}</w:t></w:document>'
        yield f"{name}.docx", made_docx(files={"word/document.xml": content.encode()})
    deep = "<a>" * 200_000 + "</a>" * 200_000
    yield "deep.docx", made_docx(files={"word/document.xml": deep.encode()})
    yield "endless.docx", made_docx(files={"word/document.xml": b"<a>" + b"<b>x</b>" * 4_000_000})
    whole = made_docx("some text to cut")
    for part in (4, 3, 2):
        yield f"cut at 1 of {part}.docx", whole[: len(whole) // part]
    yield "no document.docx", zipped({"word/document": b""})
    yield (
        "flipped.docx",
        bytes(byte ^ (0x55 if at % 97 == 50 else 0) for at, byte in enumerate(whole)),
    )


def _pdf() -> Iterator[tuple[str, bytes]]:
    for name, filters, data in (
        ("flate", b"/FlateDecode", _zeros(700)),
        ("flate twice", b"[/FlateDecode /FlateDecode]", zlib.compress(_zeros(700), 9)),
        ("hex", b"[/FlateDecode /ASCIIHexDecode]", zlib.compress(b"20" * 15 * MEGABYTE)),
        ("run length", b"/RunLengthDecode", b"\x81 " * (8 * MEGABYTE)),
        ("filters", b"[" + b"/ASCIIHexDecode " * 10_000 + b"]", b"20" * MEGABYTE),
        ("lzw", b"/LZWDecode", b"\x80\x0b\x60\x50\x22\x0c" * MEGABYTE),
    ):
        stream = pdf_stream(data, b"/Filter " + filters)
        yield f"{name}.pdf", pdf_of([_ROOT, _TREE, _PAGE, stream])
    page = made_pdf([])
    loop = b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"
    yield "tree loop.pdf", pdf_of([_ROOT, loop])
    yield "parent loop.pdf", pdf_of([_ROOT, b"<< /Type /Pages /Parent 2 0 R /Kids [] /Count 9 >>"])
    yield "count.pdf", pdf_of([_ROOT, b"<< /Type /Pages /Kids [3 0 R] /Count 2147483647 >>", _PAGE])
    yield "same table.pdf", pdf_of([_ROOT, _TREE, _PAGE, pdf_stream(b"")], b"/Prev 9")
    yield "no root.pdf", pdf_of([b"<< /Type /Catalog /Pages 1 0 R >>"])
    for name, content in (("brackets", b"[" * MEGABYTE), ("dicts", b"<< /a " * MEGABYTE)):
        yield f"{name}.pdf", pdf_of([_ROOT, _TREE, _PAGE, content])
        yield f"{name} drawn.pdf", pdf_of([_ROOT, _TREE, _PAGE, pdf_stream(content)])
    yield "saved states.pdf", pdf_of([_ROOT, _TREE, _PAGE, pdf_stream(b"q " * 5 * MEGABYTE)])
    form = b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /F 4 0 R >> >>"
    yield (
        "form in itself.pdf",
        pdf_of(
            [
                _ROOT,
                _TREE,
                _PAGE[:-2] + b"/Resources << /XObject << /F 4 0 R >> >> >>",
                pdf_stream(b"/F Do " * 1000, form),
            ]
        ),
    )
    contents = _PAGE.replace(b"4 0 R", b"[" + b"4 0 R " * 500_000 + b"]")
    yield "contents.pdf", pdf_of([_ROOT, _TREE, contents, pdf_stream(b"q Q " * 1000)])
    for part in (10, 3, 2):
        yield f"cut at 1 of {part}.pdf", page[: len(page) // part]
    yield "head alone.pdf", b"%PDF-1.7\n"
    yield "noise.pdf", b"%PDF-1.7\n" + bytes(range(256)) * 4000


def _pages() -> Iterator[tuple[str, bytes]]:
    yield "deep.html", b"<html>" + b"<div>" * 1_000_000
    yield "wide.html", b"<html>" + b"<p>" * (10 * MEGABYTE)
    yield "attribute.html", b"<html><p title='" + b"x" * (20 * MEGABYTE) + b"'>"
    yield "script.html", b"<html><script>" + b"x" * (20 * MEGABYTE)
    yield "comment.html", b"<html><!--" + b"-" * (20 * MEGABYTE)


def _texts() -> Iterator[tuple[str, bytes]]:
    yield "zeros.txt", bytes(MEGABYTE)
    yield "marked.txt", b"\xff\xfe" + b"\xd8" * MEGABYTE
    yield "wide.txt", b"\xff\xfe\0\0" + b"\xff" * MEGABYTE
    yield "blank.txt", (" " * MEGABYTE).encode("utf-16")
    yield "controls.txt", bytes(range(1, 32)) * 10_000 + b"\xff"
    yield "image.pdf", b"\x89PNG\r\n\x1a\n" + bytes(MEGABYTE)
    yield "office.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(MEGABYTE)


def _mails() -> Iterator[tuple[str, bytes]]:
    mime = b"MIME-Version: 1.0\n"
    deep = (b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(5000))
    yield "deep.eml", mime + b"".join(deep)
    yield "mails in mails.eml", mime + b"Content-Type: message/rfc822\n\n" * 1000
    yield "deep.rtf", b"{\\rtf1 " + b"{" * (10 * MEGABYTE)
    yield "binary.rtf", b"{\\rtf1 " + b"\\bin9999999999 " * 1000
    chunks = '<w:altChunk xmlns:r="x" r:id="c"/>' * 100
    files = {"word/_rels/document.xml.rels": related(c="a.txt"), "word/a.txt": b"x" * (30 << 20)}
    yield "chunks.docx", made_docx(body=chunks, files=files)
