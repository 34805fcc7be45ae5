"""Tells what kind of document bytes are, by their content; names are not trusted."""

import codecs
import re
from enum import Enum

from docllm.schemas.documents.signs import (
    is_mail,
    is_mailbox,
    seven_bit_encoding,
    utf_16_without_mark,
)
from docllm.schemas.text.document_text import NoTextError

_PDF = b"%PDF-"
_RTF = b"{\\rtf"
# Texts that nobody can read as they are.
_UNREADABLE = (
    ("%!PS", "a PostScript file, which is not read"),
    ("\x04%!PS", "a PostScript file, which is not read"),
    ("\x1b%-12345X", "a file for a printer (PJL), which is not read"),
    ("-----BEGIN PGP MESSAGE-----", "an encrypted message (PGP), which is not read"),
    ("version https://git-lfs.github.com/", "a pointer of Git LFS, not the file: git lfs pull"),
    ("[InternetShortcut]", "a link to a page, not the page"),
    ('{"url": "https://docs.google.com/', "a link to Google Docs, not the document; download it"),
    ("begin 644 ", "a file in uuencode; decode it"),
    ("JVBERi0", "a PDF in Base64; decode it"),
    ("UEsDB", "an archive or Office file in Base64; decode it"),
    ("0M8R4KGx", "an Office file of before 2007 in Base64; decode it"),
)
_BEFORE = b"\xef\xbb\xbf \t\r\n"  # what programs leave before a document's first sign
_PDF_SEARCHED = 1024  # PDF readers allow other bytes before the PDF header
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_HEAD = 4096
# Decoded in parts, so that a long text is not in memory twice.
_PART_BYTES = 1 << 20
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16's, with which it begins
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# A page begins with one of these tags, after comments and XML's own head. Markdown may begin with
# others. No repetition gives back what it took, so the time is linear.
_PAGE = re.compile(
    r"\ufeff?+(?>(?:\s|<!--(?>(?:[^-]|-(?!->))*)-->|<\?xml[^>]*+>)*)"
    r"<(?:!doctype\s++html|html|head|body)[\s>/]",
    re.IGNORECASE,
)
_MAGICS = (
    (0, b"\x89PNG\r\n", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"II*\0", "a TIFF image"),
    (0, b"MM\0*", "a TIFF image"),
    (8, b"WEBP", "a WebP image"),
    (0, b"BM", "a BMP image"),
    (0, b"8BPS", "a Photoshop image"),
    (0, b"\0\0\1\0", "an icon"),
    (4, b"jP  \r\n\x87", "a JPEG 2000 image"),
    (0, b"\xd7\xcd\xc6\x9a", "a Windows metafile"),
    (40, b" EMF", "a Windows metafile"),
    (0, b"AT&TFORM", "a DjVu document"),
    (0, b"AC10", "an AutoCAD drawing"),
    (128, b"DICM", "a DICOM image"),
    (0, b"\xc5\xd0\xd3\xc6", "a PostScript file (EPS)"),
    (60, b"BOOKMOBI", "a Kindle book (MOBI)"),
    (0, b"ITSF", "a help file (CHM)"),
    (0, b"!BDN", "an Outlook mailbox (PST)"),
    (0, b"x\x9f>\x22", "an attachment of Outlook (TNEF)"),
    (0, b"\xe4\x52\x5c\x7b\x8c\xd8\xa7\x4d", "a OneNote file"),
    (0, b"\xffWPC", "a WordPerfect file"),
    (0, b"\x31\xbe\0\0", "a Windows Write file"),
    (0, b"HWP Document File", "a Hangul document (HWP)"),
    (0, b"bplist00", "a binary property list"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"\x1f\x9d", "a compress archive (Z)"),
    (0, b"\x5d\0\0", "an LZMA archive"),
    (0, b"\x04\x22M\x18", "an LZ4 archive"),
    (0, b"MSCF", "a CAB archive"),
    (0, b"!<arch>", "an ar archive or Debian package"),
    (0, b"\xed\xab\xee\xdb", "an RPM package"),
    (32769, b"CD001", "an image of a disc (ISO)"),
    (0, b"BZh", "a bzip2 archive"),
    (0, b"\xfd7zXZ\0", "an xz archive"),
    (0, b"(\xb5/\xfd", "a Zstandard archive"),
    (0, b"7z\xbc\xaf'\x1c", "a 7-Zip archive"),
    (0, b"Rar!\x1a", "a RAR archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x7fELF", "a program"),
    (0, b"MZ", "a program"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"PAR1", "a Parquet file"),
    (0, b"Obj\1", "an Avro file"),
    (0, b"ORC", "an ORC file"),
    (0, b"ARROW1", "an Arrow file"),
    (0, b"\x89HDF", "an HDF5 file"),
    (4, b"Standard ", "an Access database"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x80\4\x95", "a Python pickle"),
    (0, b"\0\1\0\0\0", "a font"),
    (0, b"OTTO", "a font"),
    (0, b"wOF", "a font"),
    (0, b"\xca\xfe\xba\xbe", "a program"),
    (0, b"\xcf\xfa\xed\xfe", "a program"),
    (0, b"\0asm", "a program"),
    (0, b"L\0\0\0\1\x14\2\0", "a Windows shortcut, not the file"),
    (0, b"\xd4\xc3\xb2\xa1", "a capture of a network"),
    (0, b"FLV\1", "a video file"),
    (0, b"\0\0\1\xba", "a video file"),
    (8, b"AVI ", "a video file"),
    (0, b"\xff\xfb", "an audio file"),
    (0, b"\xff\xf3", "an audio file"),
    (0, b"OggS", "an audio or video file"),
    (0, b"ID3", "an audio file"),
    (8, b"WAVE", "an audio file"),
    (0, b"fLaC", "an audio file"),
    (4, b"ftyp", "an image, audio or video file"),
    (0, b"\x1aE\xdf\xa3", "a video file"),
)
# Control characters that text of any encoding has: tab, line feed, form feed, carriage return, and
# escape, by which ISO-2022 shifts.
_TEXT_CONTROLS = frozenset(b"\t\n\x0c\r\x1b\x1a")
_CONTROLS = bytes(sorted(frozenset(range(32)) - _TEXT_CONTROLS))
_CONTROLS_PER_BYTE = 1 / 100


class Kind(Enum):
    """A kind of document that can be read, in words for a person."""

    TEXT = "text in UTF-8"
    UNICODE = "text in UTF-16 or UTF-32"
    OTHER_TEXT = "text in another encoding"
    HTML = "HTML"
    PDF = "PDF"
    DOCX = "DOCX"
    RTF = "RTF"
    MAIL = "a mail"


_TEXTUAL = frozenset({Kind.TEXT, Kind.UNICODE, Kind.OTHER_TEXT, Kind.HTML})
_NEVER_TEXT = (".pdf", ".docx")
# What zip archives hold: of a kind that is read, and of those that are not.
_ZIPPED: tuple[tuple[bytes, Kind | str], ...] = (
    (b"word/document", Kind.DOCX),
    (b"xl/workbook", "an Excel file (XLSX)"),
    (b"ppt/presentation", "a PowerPoint file (PPTX)"),
    (b"visio/document", "a Visio file (VSDX)"),
    (b"Index/", "a file of Pages, Numbers or Keynote"),
    (b"FixedDocSeq.fdseq", "an XPS document"),
    (b"META-INF/container.xml", "an EPUB book"),
    (b"Contents/section0.xml", "a Hangul document (HWPX)"),
)
# Of these, the first file names the kind in clear.
_BY_MIMETYPE = (
    (b"mimetypeapplication/vnd.oasis.opendocument.text", "an OpenDocument text (ODT)"),
    (b"mimetypeapplication/vnd.oasis.opendocument", "an OpenDocument file"),
    (b"mimetypeapplication/epub+zip", "an EPUB book"),
)
_ZIP_LIST_END = b"PK\5\6"
_ZIP_LISTED = b"PK\1\2"
_ZIP_LISTED_BYTES = 46  # before the name of a file in the list
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# What files of Office before 2007 hold, by the names of their streams.
_OLE_STREAMS = (
    ("EncryptedPackage", "an encrypted Office file"),
    ("__substg1.0_", "an Outlook mail (MSG)"),
    ("WordDocument", "a Word file of before 2007 (DOC)"),
    ("Workbook", "an Excel file of before 2007 (XLS)"),
    ("PowerPoint Document", "a PowerPoint file of before 2007 (PPT)"),
    ("HwpSummaryInformation", "a Hangul document (HWP)"),
    ("VisioDocument", "a Visio file of before 2013 (VSD)"),
    ("Quill", "a Publisher file"),
    ("Book", "an Excel file of before 1997 (XLS)"),
)


def kind_of(raw: bytes) -> Kind:
    """Return the kind of a whole document.

    Raises NoTextError, whose text names the kind of a file that is no document.
    """
    if raw[:_PDF_SEARCHED].lstrip(_BEFORE + b"\0").startswith(_PDF):
        return Kind.PDF
    is_rtf = raw[:_PDF_SEARCHED].lstrip(_BEFORE).startswith(_RTF)
    if is_rtf or raw.startswith((*_ZIP, _OLE)):
        return Kind.RTF if is_rtf else _kind_of_container(raw)
    encoding = unicode_encoding(raw)
    if encoding is not None:
        return Kind.HTML if is_page(raw[:_HEAD].decode(encoding, "ignore")) else Kind.UNICODE
    if is_utf8(raw):
        return _kind_of_text(raw, raw[:_HEAD].decode(errors="ignore"), Kind.TEXT)
    if _PDF in raw[:_PDF_SEARCHED]:
        return Kind.PDF
    _refuse_binary(raw)
    return _kind_of_text(raw, raw[:_HEAD].decode("latin-1"), Kind.OTHER_TEXT)


def misnamed(kind: Kind, name: str) -> str:
    """Return what is wrong with text in a file that is named as a PDF or DOCX; "" if nothing is.

    A server's error or login page is often saved under the name of the document itself.
    """
    ending = next(filter(name[-5:].lower().endswith, _NEVER_TEXT), "")
    if not ending or kind not in _TEXTUAL:
        return ""
    return f"is {kind.value}, though its name ends in {ending}"


def _kind_of_text(raw: bytes, head: str, kind: Kind) -> Kind:
    """Return the kind of bytes that are text, which is `kind` if they have no sign of another."""
    if is_page(head):
        return Kind.HTML
    for beginning, name in _UNREADABLE:
        if head.startswith(beginning):
            raise NoTextError(f"is {name}")
    if is_mailbox(raw):
        raise NoTextError("is a mailbox (MBOX), which is not read")
    if is_mail(raw):
        return Kind.MAIL
    return Kind.OTHER_TEXT if seven_bit_encoding(raw) else kind


def _kind_of_ole(raw: bytes) -> str:
    for stream, kind in _OLE_STREAMS:
        if stream.encode("utf-16-le") in raw:
            return kind
    return "an Office file of before 2007, or an encrypted one"


def bom_encoding(raw: bytes) -> str | None:
    """Return the encoding that a byte order mark names, as Python calls it; None without one."""
    return next((encoding for bom, encoding in _BOMS if raw.startswith(bom)), None)


def unicode_encoding(raw: bytes) -> str | None:
    """Return the encoding of a text in UTF-16 or UTF-32, with a byte order mark or without."""
    encoding = bom_encoding(raw)
    if encoding in {"utf-16", "utf-32"}:
        return encoding
    return utf_16_without_mark(raw) if b"\0" in raw else None


def is_page(head: str) -> bool:
    """Return whether a text begins as a page of HTML does."""
    return _PAGE.match(head) is not None


def is_utf8(raw: bytes) -> bool:
    """Return whether bytes are text in UTF-8: without a zero byte, and with no other error."""
    if b"\0" in raw:
        return False
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(raw), _PART_BYTES):
            decoder.decode(raw[start : start + _PART_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _kind_of_container(raw: bytes) -> Kind:
    """Return the kind of a file that holds named ones, whose names it has in clear."""
    if raw.startswith(_OLE):
        found: Kind | str = _kind_of_ole(raw)
    else:
        found = _kind_of_zip(raw)
    if isinstance(found, Kind):
        return found
    raise NoTextError(f"is {found}, which is not read")


def _kind_of_zip(raw: bytes) -> Kind | str:
    """Return the kind of an archive by its list of files, without looking into files of it."""
    for mimetype, book in _BY_MIMETYPE:
        if mimetype in raw[:_HEAD]:
            return book
    end = raw.rfind(_ZIP_LIST_END)
    if end < 0:  # it is cut off
        return next((kind for name, kind in _ZIPPED if name in raw), "a ZIP archive")
    start = int.from_bytes(raw[end + 16 : end + 20], "little")
    for name, kind in _ZIPPED:
        at = raw.find(name, start)
        while at >= 0:
            if raw.startswith(_ZIP_LISTED, at - _ZIP_LISTED_BYTES):
                return kind
            at = raw.find(name, at + 1)
    return "a ZIP archive"


def _refuse_binary(raw: bytes) -> None:
    """Refuse bytes that cannot be text in any encoding."""
    has_zero = b"\0" in raw
    for start, magic, name in _MAGICS:
        # A text may begin with the letters of a binary signature, as "BMW" begins with "BM".
        if raw.startswith(magic, start) and (has_zero or not magic.isascii()):
            raise NoTextError(f"is {name}, which is not read")
    if has_zero:
        raise NoTextError("is not text: it has a zero byte")
    controls = len(raw) - len(raw.translate(None, _CONTROLS))
    if controls > len(raw) * _CONTROLS_PER_BYTE:
        raise NoTextError(f"is not text: {controls} of its {len(raw)} bytes are control characters")
