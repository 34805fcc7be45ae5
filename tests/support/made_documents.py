"""Makes documents for tests: PDF by hand, DOCX by zipfile, sound and broken ones."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" '
    'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="xml" ContentType="application/xml"/>'
    '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-'
    'officedocument.wordprocessingml.document.main+xml"/></Types>'
)
_RELATIONS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/'
    'relationships/officeDocument" Target="word/document.xml"/></Relationships>'
)
_PAGE = (
    "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {} 0 R "
    "/Resources << /Font << /F1 3 0 R >> >> >>"
)


def made_pdf(*pages: Sequence[str]) -> bytes:
    """Return a PDF with a page for each list of lines."""
    numbers = [4 + 2 * number for number in range(len(pages))]
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%s] /Count %d >>"
        % (b" ".join(b"%d 0 R" % number for number in numbers), len(pages)),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, lines in zip(numbers, pages, strict=True):
        objects += [_PAGE.format(number + 1).encode(), pdf_stream(_drawn(lines))]
    return pdf_of(objects)


def _drawn(lines: Sequence[str]) -> bytes:
    shown = " ".join(f"({line}) Tj T*" for line in lines)
    return f"BT /F1 12 Tf 72 720 Td 14 TL {shown} ET".encode("latin-1")


def pdf_stream(data: bytes, entries: bytes = b"") -> bytes:
    """Return the object of a stream."""
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), entries, data)


def pdf_of(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """Return a PDF of numbered objects, of which the first is the root."""
    raw, starts = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n", []
    for number, content in enumerate(objects, 1):
        starts.append(len(raw))
        raw += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % start for start in starts)
    return raw + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<< /Size %d /Root 1 0 R %s >>\n"
        b"startxref\n%d\n%%%%EOF\n" % (len(starts) + 1, table, len(starts) + 1, trailer, len(raw))
    )


def made_docx(*paragraphs: str, body: str = "", files: Mapping[str, bytes] | None = None) -> bytes:
    """Return a DOCX with paragraphs, more XML for its body, and more files."""
    inner = "".join(map(paragraph, paragraphs)) + body
    document = f'<w:document xmlns:w="{_WORD}"><w:body>{inner}</w:body></w:document>'
    return zipped(
        {
            "[Content_Types].xml": _TYPES.encode(),
            "_rels/.rels": _RELATIONS.encode(),
            "word/document.xml": document.encode(),
        }
        | dict(files or {})
    )


def paragraph(text: str) -> str:
    """Return the XML of a paragraph."""
    return f'<w:p><w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'


def table(*rows: Sequence[str]) -> str:
    """Return the XML of a table."""
    cells = (
        "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row).join(["<w:tr>", "</w:tr>"])
        for row in rows
    )
    return f"<w:tbl>{''.join(cells)}</w:tbl>"


def linked_image(relation: str) -> str:
    """Return the XML of an image that is not in the file."""
    drawing = "http://schemas.openxmlformats.org/drawingml/2006"
    links = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    return (
        f'<w:p><w:r><w:drawing><wp:inline xmlns:wp="{drawing}/wordprocessingDrawing">'
        f'<a:graphic xmlns:a="{drawing}/main"><a:graphicData>'
        f'<pic:pic xmlns:pic="{drawing}/picture"><pic:blipFill>'
        f'<a:blip xmlns:r="{links}" r:link="{relation}"/></pic:blipFill></pic:pic>'
        "</a:graphicData></a:graphic></wp:inline></w:drawing></w:r></w:p>"
    )


def linked(**targets: str) -> bytes:
    """Return the relations of a DOCX's text to images elsewhere."""
    return related("image", external=True, **targets)


def related(kind: str = "aFChunk", *, external: bool = False, **targets: str) -> bytes:
    """Return the relations of a DOCX's text to parts of the file, or to places outside it."""
    links = "http://schemas.openxmlformats.org"
    mode = 'TargetMode="External"' if external else ""
    each = "".join(
        f'<Relationship Id="{name}" Type="{links}/officeDocument/2006/relationships/{kind}" '
        f'Target="{target}" {mode}/>'
        for name, target in targets.items()
    )
    return (
        f'<Relationships xmlns="{links}/package/2006/relationships">{each}</Relationships>'.encode()
    )


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return a zip archive. It is packed fast, since some tests fill it with bytes alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED, compresslevel=1)
    return buffer.getvalue()
