"""Reads an altChunk: a part of a DOCX file that is a whole document of another kind."""

import posixpath
import zipfile
from collections.abc import Callable

from docllm.agent.documents.conversion.html import text_of_html
from docllm.agent.documents.conversion.mail import text_of_mail
from docllm.agent.documents.conversion.rtf import text_of_rtf
from docllm.schemas.documents.encoding import decoded_text
from docllm.schemas.documents.kind import Kind, kind_of
from docllm.schemas.documents.limits import MAX_DOCUMENT_BYTES
from docllm.schemas.text.document_text import NoTextError, ReadText

_PAGES = frozenset({".htm", ".html", ".xht", ".xhtml"})
_XML = ".xml"  # Word's own format on one page, and others


def text_of_chunk(
    archive: zipfile.ZipFile, part: str, *, docx: Callable[[bytes], ReadText]
) -> ReadText | None:
    """Return the text of a part; None if it is of no kind that is read here."""
    if archive.getinfo(part).file_size > MAX_DOCUMENT_BYTES:
        return None
    raw = archive.read(part)
    try:
        kind, ending = kind_of(raw), posixpath.splitext(part)[1].lower()
        if kind is Kind.HTML or ending in _PAGES:
            return text_of_html(raw)
        readers = {Kind.DOCX: docx, Kind.MAIL: text_of_mail, Kind.RTF: text_of_rtf}
        if (reader := readers.get(kind)) is not None:
            return reader(raw)
        return None if kind is Kind.PDF or ending == _XML else decoded_text(raw)
    except NoTextError:
        return None
