"""Names files that hold no task lines, by their first bytes."""

import codecs
import re

from docllm.producer.arrow import INSTALL
from docllm.producer.input.foreign_forms import NAME_COLUMNS
from docllm.schemas.documents.kind import kind_of
from docllm.schemas.text.document_text import NoTextError

_KIND_BYTES = 4096
_OF_OTHER_ENCODING = 2  # lines that show that a file has another encoding
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]++")
_WITHOUT_BOM = {
    b"{\0\0\0": "UTF-32LE",  # before UTF-16's, with which it begins
    b"\0\0\0{": "UTF-32BE",
    b"{\0": "UTF-16LE",
    b"\0{": "UTF-16BE",
}
_UNPACK = {
    "Zstandard": f"zstd -dc FILE | docllm load -, or let docllm do it: {INSTALL}",
    "7-Zip": "7z x FILE",
    "RAR": "unrar x FILE",
    "tar": "tar -xf FILE",
}
# Packings of lines, by the bytes at a place; as a document, none of them is read.
_NOT_READ = (
    (0, b"\x04\x22M\x18", "an LZ4 archive", "lz4 -dc FILE | docllm load -"),
    (0, b"\x1f\x9d", "an archive of compress (.Z)", "gzip -dc FILE | docllm load -"),
    (0, b"LZIP", "an lzip archive", "lzip -dc FILE | docllm load -"),
    (0, b"\x89LZO\0", "an lzop archive", "lzop -dc FILE | docllm load -"),
    (0, b"\xff\x06\0\0sNaPpY", "a Snappy archive", "snzip -dc FILE | docllm load -"),
    (1, b"*M\x18", "a Zstandard archive", _UNPACK["Zstandard"]),  # begins with a frame to skip
)


class NoLinesError(Exception):
    """An input that holds no task lines, or none that can be read: what it is, and what to do."""

    def __init__(self, error: str, *, fix: str) -> None:
        super().__init__(error)
        self.error = error
        self.fix = fix


def refuse_other(head: bytes) -> None:
    """Raise NoLinesError if a file begins as no file of task lines does."""
    for beginning, encoding in _WITHOUT_BOM.items():
        if head.startswith(beginning):
            raise NoLinesError(
                f"the file is {encoding} without a byte order mark",
                fix=f"convert it first: iconv -f {encoding} -t UTF-8 FILE | docllm load -",
            )
    for at, beginning, name, command in _NOT_READ:
        if head.startswith(beginning, at):
            raise NoLinesError(f"the file is {name}", fix=f"unpack it first: {command}")
    if head.lstrip().startswith(b"{\\rtf"):
        raise NoLinesError("the file is an RTF document", fix="load documents with --documents")
    if head and head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] not in {b"{", b"["}:
        if head.startswith(b"PAR1"):
            raise NoLinesError("the file is a table (Parquet)", fix=NAME_COLUMNS)
        refuse_kind(head, "name a file of task lines")
    if not head.isascii() and not _is_utf8(head):
        _refuse_encoding(head)


def refuse_kind(head: bytes, fix: str) -> None:
    """Raise NoLinesError if a file begins as no text does, or as a text that has no lines."""
    head = head[:_KIND_BYTES]
    if b"%PDF-" in head[:1024]:
        raise NoLinesError("the file is a PDF document", fix="load documents with --documents")
    try:
        kind_of(head)
    except NoTextError as refusal:
        name = str(refusal).removesuffix(", which is not read").removeprefix("is ")
        if name.startswith("not text") and b"\n{" in head:
            return  # some of its lines are damaged, not all
        command = next((_UNPACK[kind] for kind in _UNPACK if kind in name), "")
        raise NoLinesError(
            f"the file is {name}",
            fix=f"unpack it first: {command}" if command else fix,
        ) from None


def _refuse_encoding(head: bytes) -> None:
    """Raise NoLinesError if none of the lines of JSON with letters beyond ASCII is UTF-8.

    A line that is damaged, among others in UTF-8, is only a bad line.
    """
    objects = [line for line in head.splitlines() if line.lstrip()[:1] in {b"{", b"[", b'"'}]
    if not objects:
        raise NoLinesError(
            "the file is not UTF-8, and has no JSON", fix="name a file of task lines"
        )
    lines = [line for line in objects if not line.isascii()]
    if len(lines) < _OF_OTHER_ENCODING or any(map(_is_utf8, lines)):
        return
    runs = _BEYOND_ASCII.findall(head)
    if 2 * len(runs) > sum(map(len, runs)):  # Latin letters beyond ASCII mostly stand alone
        raise NoLinesError(
            "the file is not UTF-8, but probably Windows-1252 or another encoding of Latin letters",
            fix="convert it: iconv -f WINDOWS-1252 -t UTF-8 FILE | docllm load -",
        )
    raise NoLinesError(
        "the file is not UTF-8, but another encoding, such as GB18030, Shift_JIS or KOI8-R",
        fix="convert it: iconv -f ENCODING -t UTF-8 FILE | docllm load -",
    )


def _is_utf8(raw: bytes) -> bool:
    """Return whether bytes are UTF-8, perhaps with the end cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(raw)
    except UnicodeDecodeError:
        return False
    return True
