"""Extracts plain text from a DOCX file, via HTML, which keeps tables and lists in place."""

import io
import zipfile

import mammoth

from agent.documents.conversion.html import text_of_source
from schemas.text.document_text import NoTextError

_MAX_FILES = 10_000
_HEAD_BYTES = 64
_BEFORE_XML = b"\xef\xbb\xbf\xff\xfe\0 \t\r\n"  # byte order marks and blanks, also in UTF-16
_MAX_XML_BYTES = 64 << 20  # unpacked; images and other media are never unpacked


def text_of_docx(raw: bytes) -> str:
    """Return the text of a DOCX file. Raises NoTextError."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            _require_small(archive)
        page = mammoth.convert_to_html(
            io.BytesIO(raw), convert_image=mammoth.images.img_element(_no_image)
        )
    except (MemoryError, RecursionError, NoTextError):
        raise
    except Exception as error:
        raise NoTextError(
            f"is a broken DOCX file ({type(error).__name__}); save it again, or as PDF"
        ) from error
    return text_of_source(page.value)


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
