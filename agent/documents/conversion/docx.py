"""Extracts plain text from a DOCX file, via HTML, which keeps tables and lists in place."""

import io
import re
import zipfile
from collections.abc import Iterable

import mammoth

from docllm.agent.documents.conversion.docx_chunks import text_of_chunk
from docllm.agent.documents.conversion.docx_parts import BOX, BOXES, DocxParts
from docllm.agent.documents.conversion.html import text_of_source
from docllm.schemas.text.document_text import NoTextError, ReadText
from docllm.schemas.text.wording import number_of

_MAX_FILES = 10_000
_HEAD_BYTES = 64
_BEFORE_XML = b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"  # byte order marks and blanks, also in UTF-16
_MAX_XML_BYTES = 64 << 20  # unpacked; images and other media are never unpacked
_MAX_CHUNKS = 100
_MAX_DEPTH = 3  # of DOCX files in each other's altChunks
_ROUNDS = 4  # an element that gives way may hold another one that mammoth ignores
_IGNORED = re.compile(r"An unrecognised element was ignored: (?>(?:\{[^}]*+\})?)([\w.:-]++)\Z")
_SYMBOL = "A w:sym element with an unsupported character"
# Parts that may hold text, none of which is read.
_CHART = re.compile(r"word/charts/chart[^/.]*+\.xml")
_DIAGRAM = re.compile(r"word/diagrams/data[^/.]*+\.xml")
_EMBEDDED = re.compile(r"word/embeddings/[^/]++")
_TABLE = "word/embeddings/Microsoft_Excel_"  # each chart has one
_BODY = re.compile(r"word/document[^/.]*+\.xml")
_COMMENT = re.compile(rb"[<:]comment\s")
_MEDIA = "word/media/"
_COMMENTS = "word/comments.xml"


def text_of_docx(raw: bytes, *, depth: int = 0) -> ReadText:
    """Return the text of a DOCX file, and what was left out of it. Raises NoTextError."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            _require_small(archive)
            omitted = list(_unread(archive))
            pictures = sum(name.startswith(_MEDIA) for name in archive.namelist())
            page = _page(io.BytesIO(raw))
            if to_rewrite := _ignored(page) | _boxes(archive):
                text, lost = _rewritten(archive, page, to_rewrite, depth)
                omitted = lost + omitted
            else:
                text = text_of_source(page.value)
    except (MemoryError, RecursionError, NoTextError):
        raise
    except Exception as error:
        raise NoTextError(
            f"is a broken DOCX file ({type(error).__name__}); save it again, or as PDF"
        ) from error
    symbols = sum(message.message.startswith(_SYMBOL) for message in page.messages)
    omitted += [number_of(symbols, "symbol")] if symbols else []
    if pictures and not (omitted or text.strip()):
        raise NoTextError(
            f"is a DOCX file with {number_of(pictures, 'picture')} and no text, as scans are; "
            "save it as PDF, and run OCR on it first"
        )
    if omitted and not text.strip():
        raise NoTextError(
            f"is a DOCX file with its text in parts that are not read ({', '.join(omitted[:3])}); "
            "save it as PDF"
        )
    return ReadText(text, tuple(omitted))


def _rewritten(
    archive: zipfile.ZipFile, page: mammoth.results.Result, ignored: set[str], depth: int
) -> tuple[str, list[str]]:
    """Return the text of a file that has elements which mammoth ignores, and what was left out."""
    names = archive.namelist()
    read = [file.filename for file in archive.infolist() if _is_read(archive, file)]
    parts = DocxParts(names=read, read=archive.read)
    seen: set[str] = set()
    for _ in range(_ROUNDS):
        if not ignored or not parts.rewrite(ignored):
            break
        page = _page(parts.archive())
        seen |= ignored
        ignored = _ignored(page) - seen
    if len(parts.chunks) > _MAX_CHUNKS:
        raise NoTextError(
            f"is a DOCX file with {len(parts.chunks)} altChunks; at most {_MAX_CHUNKS} are read"
        )
    texts, omitted = [], []
    for number, part in enumerate(parts.chunks, 1):
        chunk = None
        if part in names and depth < _MAX_DEPTH:
            chunk = text_of_chunk(
                archive, part, docx=lambda raw: text_of_docx(raw, depth=depth + 1)
            )
        texts.append("" if chunk is None else chunk.text)
        name = f"altChunk {number}"
        omitted += [name] if chunk is None else [f"{name}: {lost}" for lost in chunk.omitted]
    return parts.with_chunks(text_of_source(page.value), texts), omitted


def _page(file: io.BytesIO) -> mammoth.results.Result:
    return mammoth.convert_to_html(file, convert_image=mammoth.images.img_element(_no_image))


def _ignored(page: mammoth.results.Result) -> set[str]:
    """Return the names of the elements that mammoth has ignored, by its own messages."""
    matches = (_IGNORED.match(message.message) for message in page.messages)
    return {match[1].rpartition(":")[2] for match in matches if match}


def _boxes(archive: zipfile.ZipFile) -> set[str]:
    """Return what may hold text boxes of a file that has any: mammoth says nothing of these."""
    mark = BOX.encode()
    bodies = filter(_BODY.fullmatch, archive.namelist())
    return set(BOXES) if any(mark in archive.read(name) for name in bodies) else set()


def _unread(archive: zipfile.ZipFile) -> Iterable[str]:
    """Yield what a file has that may hold text and is not read, with its count."""
    names = archive.namelist()
    charts, diagrams, embedded = (
        sum(pattern.fullmatch(name) is not None for name in names)
        for pattern in (_CHART, _DIAGRAM, _EMBEDDED)
    )
    embedded -= min(charts, sum(name.startswith(_TABLE) for name in names))
    for count, noun in ((charts, "chart"), (diagrams, "diagram"), (embedded, "embedded file")):
        if count:
            yield number_of(count, noun)
    if _COMMENTS in names and (count := len(_COMMENT.findall(archive.read(_COMMENTS)))):
        yield number_of(count, "comment")


def _require_small(archive: zipfile.ZipFile) -> None:
    files = archive.infolist()
    unpacked = sum(file.file_size for file in files if _is_read(archive, file))
    if len(files) > _MAX_FILES or unpacked > _MAX_XML_BYTES:
        raise NoTextError(
            f"is a DOCX file that unpacks to {len(files)} files with {unpacked} bytes of text; "
            f"at most {_MAX_FILES} files with {_MAX_XML_BYTES} bytes are read"
        )


def _is_read(archive: zipfile.ZipFile, file: zipfile.ZipInfo) -> bool:
    """Return whether a part can be read as XML; relationships may give that any name."""
    if file.filename.lower().endswith((".xml", ".rels")):
        return True
    with archive.open(file) as part:
        head = part.read(_HEAD_BYTES)
    return bool(head.strip(b"\0")) and head.lstrip(_BEFORE_XML)[:1] in {b"", b"<"}


def _no_image(_image: object) -> dict[str, str]:
    """Skip an image: it may be large, or refer to a file or an address."""
    return {}
