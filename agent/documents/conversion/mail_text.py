"""Decodes a mail's heads, and the text of its parts."""

import binascii
import codecs
import quopri
import re
from collections.abc import Sequence
from contextlib import suppress
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.policy import Compat32

from docllm.agent.documents.conversion.html import text_of_source
from docllm.agent.documents.conversion.rtf import text_of_rtf
from docllm.schemas.documents.encoding import decoded_text, page_text, text_in
from docllm.schemas.documents.kind import is_page
from docllm.schemas.text.document_text import ReadText

HEAD_CHARS = 10_000
_PAGES = frozenset({"text/html", "application/xhtml+xml", "text/x-amp-html"})
_RTF = frozenset({"text/rtf", "text/richtext", "application/rtf"})
_RTF_BEGINS = b"{\\rtf"
_HEAD = 4096
_CONTENT = "content-"
_CONTENT_CHARS = 4096  # email reads the parameters of a head in quadratic time
_BASE64_SIGNS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_NOT_BASE64 = bytes(set(range(256)).difference(_BASE64_SIGNS))
ENCODING = "content-transfer-encoding"
_FOREIGN = 0.01  # the share of other signs from which a text is no base64
_GROUP = 4  # characters of base64, which are three bytes
_BASE64, _QUOTED = "base64", "quoted-printable"
_UUENCODED = frozenset({"x-uuencode", "uuencode", "uue", "x-uue"})
_WIDE = re.compile(r"utf[-_]?+(?:16|32)[-_]?+(?:le|be)")
_WRONG = frozenset({"idna", "punycode", "undefined", "unicode_escape", "raw_unicode_escape"})
_PGP, _PGP_END = "-----BEGIN PGP MESSAGE-----", "-----END PGP MESSAGE-----"
_FILE = re.compile(r"begin [0-7]{3,4} (.{1,200}+)")
_FILE_END = "end"
_YENC = re.compile(r"=ybegin (?>(?:[a-z]{1,9}=\d{1,12} ){1,6})name=(.{1,200}+)")
_YENC_END = "=yend"


class RawHeads(Compat32):
    """Reads a mail's heads as they stand, and what programs use of them in bounded time."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        """Return the name and the value of a head."""
        name, value = super().header_source_parse(sourcelines)
        is_content = name.lower().startswith(_CONTENT)
        return name, value[:_CONTENT_CHARS] if is_content else value

    def header_fetch_parse(self, name: str, value: str) -> str:  # noqa: ARG002 - of the base class
        """Return a head's value; bytes that are not ASCII are surrogates."""
        return value


def head_text(value: str) -> tuple[str, bool]:
    """Return a head's text on one line, and whether it was cut.

    A head that is not encoded right is shown as it is.
    """
    shown = _raw_text(value[:HEAD_CHARS])
    with suppress(ValueError, LookupError, HeaderParseError):
        shown = str(make_header(decode_header(shown)))
    return " ".join(shown.split()), len(value) > HEAD_CHARS


def name_of(part: "Message[str, str]") -> str:
    """Return the name of an attachment, in whichever way it is encoded; "" without one."""
    with suppress(ValueError, LookupError):
        return head_text(part.get_filename() or "")[0]
    return ""


def encoding_of(part: "Message[str, str]") -> str:
    """Return how the bytes of a part are encoded."""
    return str(part.get(ENCODING, "")).partition(";")[0].strip().lower()


def is_encoded(part: "Message[str, str]") -> bool:
    """Return whether the bytes of a part that holds others are encoded, which nobody may do."""
    return encoding_of(part) in {_BASE64, _QUOTED}


def decoded(part: "Message[str, str]") -> tuple[bytes, bool]:
    """Return the bytes of a part, and whether some are missing."""
    encoding = encoding_of(part)
    if encoding in _UUENCODED:
        return _payload(part), False
    del part[ENCODING]  # email would take base64 that is cut off for text
    raw = _payload(part)
    if encoding == _QUOTED:
        return quopri.decodestring(raw), False
    return _from_base64(raw) if encoding == _BASE64 else (raw, False)


def _payload(part: "Message[str, str]") -> bytes:
    raw = part.get_payload(decode=True)
    return raw if isinstance(raw, bytes) else b""


def _from_base64(raw: bytes) -> tuple[bytes, bool]:
    """Return the bytes that base64 stands for, and whether some cannot be told."""
    signs, _, after = raw.partition(b"=")
    whole = signs.translate(None, _NOT_BASE64)
    foreign = len(b"".join(signs.split())) - len(whole)
    if foreign > len(signs) * _FOREIGN:
        return raw, False  # it is no base64
    is_cut = len(whole) % _GROUP != 0 and len(signs) == len(raw)
    whole = whole[:-1] if len(whole) % _GROUP == 1 else whole
    decoded_bytes = binascii.a2b_base64(whole + b"=" * (-len(whole) % _GROUP))
    return decoded_bytes, is_cut or foreign > 0 or bool(after.strip(b"= \t\r\n"))


def part_text(part: "Message[str, str]", raw: bytes) -> ReadText:
    """Return the text of a part, and what was left out. Raises NoTextError."""
    kind = part.get_content_type()
    if not raw.strip():
        return ReadText("")
    if kind in _RTF and raw.lstrip().startswith(_RTF_BEGINS):
        return text_of_rtf(raw)
    declared = _in_charset(raw, str(part.get_content_charset() or ""))
    if kind in _PAGES:
        source, notes = page_text(raw) if declared is None else declared
        return ReadText(text_of_source(source), notes)
    text, notes = decoded_text(raw) if declared is None else declared
    if kind != "text/plain" and is_page(text[:_HEAD]):
        return ReadText(text_of_source(text), notes)
    text, omitted = _without_blocks(text.replace("\r\n", "\n").replace("\r", "\n"))
    return ReadText(text, (*notes, *omitted))


def _in_charset(raw: bytes, charset: str) -> ReadText | None:
    """Return a text in the encoding that the mail declares; None if that is unknown."""
    if _WIDE.fullmatch(charset):
        return ReadText(raw.decode(charset, "replace").lstrip("\ufeff"))
    read = text_in(raw, charset)
    if read is None and charset:
        with suppress(LookupError, ValueError):
            codec = codecs.lookup(charset).name
            if not codec.startswith(("utf", *_WRONG)):
                read = ReadText(str(raw, codec, "replace"))
    return read


def _raw_text(value: str) -> str:
    """Return a head whose bytes are in no declared encoding, as many programs write it."""
    raw = value.encode("utf-8", "surrogateescape")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


def _without_blocks(text: str) -> ReadText:
    """Return a text without the files and encrypted messages that stand among its lines."""
    if "begin " not in text and _PGP not in text:
        return ReadText(text.strip())
    lines, kept, omitted, end = text.split("\n"), [], [], ""
    for number, line in enumerate(lines):
        if end:
            end = "" if line.rstrip() == end or (end[0] == "=" and line.startswith(end)) else end
        elif block := _block(line, lines[number + 1 : number + 2]):
            end, name = block
            omitted.append(name)
        else:
            kept.append(line)
    return ReadText("\n".join(kept).strip(), tuple(omitted))


def _block(line: str, following: Sequence[str]) -> tuple[str, str] | None:
    """Return the end and the name of what begins with a line; None if it is of the text."""
    if line.rstrip() == _PGP:
        return _PGP_END, "encrypted text (PGP)"
    if found := _YENC.match(line):
        return _YENC_END, f"attachment {found[1]}"
    found = _FILE.match(line)
    if found and following and _is_uuencoded(following[0].rstrip()):
        return _FILE_END, f"attachment {found[1]}"
    return None


def _is_uuencoded(line: str) -> bool:
    """Return whether a line is as long as its first sign says."""
    size = (ord(line[0]) - 32) & 63 if line else 0
    return size > 0 and 0 <= len(line) - 1 - (size * 4 + 2) // 3 <= _GROUP
