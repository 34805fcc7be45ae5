"""Decodes text that is not UTF-8: by its byte order mark, its own declaration, or its language.

What may be wrong with the text is named beside it, as what was left out is.
"""

import codecs
import re

from docllm.schemas.documents.guess import guessed_encoding
from docllm.schemas.documents.kind import bom_encoding, is_utf8, unicode_encoding
from docllm.schemas.documents.signs import seven_bit_encoding
from docllm.schemas.text.document_text import NoTextError, ReadText
from docllm.schemas.text.wording import number_of

_UNSURE = "encoding guessed: {}; save as UTF-8 to be certain"
_FIRST_STRAY = 0xDC00  # as Python shows a byte that is not UTF-8
# In these, letters beyond ASCII stand alone: what is right UTF-8 is never one by chance.
_OF_SINGLE_LETTERS = frozenset({"cp1250", "cp1252", "cp1254", "cp1257"})
# Halves of a character, each in UTF-8 of its own, as CESU-8 and Java have them.
_HALVES = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")
# The tags that declare the encoding of an HTML page or an XML file, and how each of them does. A
# tag is cut out before it is searched, so no byte is read for more than one of them.
_DECLARING = re.compile(rb"<(?:meta|(\?xml))([^>]*+)", re.IGNORECASE)
_BY_META = re.compile(rb"charset\s*+=\s*+[\"']?+\s*+([\w.:-]++)", re.IGNORECASE)
_BY_XML = re.compile(rb"encoding\s*+=\s*+[\"']([\w.:-]++)", re.IGNORECASE)
_DECLARED_WITHIN = 4096
_BEFORE = b"\xef\xbb\xbf \t\r\n"
# Encodings that pages use, as Python calls them; others are no text, or take quadratic time.
_OF_PAGES = tuple(
    "ascii big5 cp125 cp437 cp737 cp775 cp85 cp86 cp874 cp932 cp949 euc_ gb hz iso2022 iso8859 "
    "johab koi8 kz1048 mac shift utf-7 utf-8".split()
)
# Browsers read these names as the Windows encodings that contain them.
_WIDER = {
    "iso-8859-1": "cp1252",
    "latin1": "cp1252",
    "us-ascii": "cp1252",
    "ascii": "cp1252",
    "iso-8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "x-sjis": "cp932",
    "windows-31j": "cp932",
    "tis-620": "cp874",
    "windows-874": "cp874",
    "iso-8859-8-i": "iso-8859-8",
    "x-gbk": "gb18030",
    "x-euc-jp": "euc_jp",
    "x-x-big5": "big5",
    "x-mac-cyrillic": "mac_cyrillic",
    "x-mac-roman": "mac_roman",
}


def decoded_text(raw: bytes) -> ReadText:
    """Return the text of bytes that are text in some encoding. Raises NoTextError."""
    if seven_bit := seven_bit_encoding(raw):
        return _as(raw, seven_bit)
    encoding = bom_encoding(raw) or unicode_encoding(raw)
    if encoding == "utf-8-sig":
        return _undeclared(raw)
    if encoding is None:
        declared = _declared(raw) if raw.lstrip(_BEFORE).startswith(b"<") else None
        return _as_declared(raw, declared) if declared else _undeclared(raw)
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        raise NoTextError(f"is not the {encoding.upper()} of its byte order mark") from None
    if "\0" in text:
        raise NoTextError("is not text: it has a zero character")
    return ReadText(text)


def page_text(raw: bytes) -> ReadText:
    """Return an HTML page's source; without a byte order mark, by its declared encoding.

    Raises NoTextError.
    """
    declared = None if unicode_encoding(raw) or bom_encoding(raw) else _declared(raw)
    return decoded_text(raw) if declared is None else _as_declared(raw, declared)


def text_in(raw: bytes, declared: str) -> ReadText | None:
    """Return the text of bytes in an encoding that their sender declares; None if it is unknown.

    Raises NoTextError.
    """
    codec = _codec(declared.lower())
    if codec is None:
        return None
    text, notes = _as_declared(raw, codec)
    return ReadText(text.replace("\0", ""), notes)


def _as_declared(raw: bytes, codec: str) -> ReadText:
    """Return a text by its declared encoding, unless its bytes are certainly in another one."""
    if raw.isascii():
        return _as(raw, codec)
    if codec == "utf-8" or is_utf8(raw):
        return _undeclared(raw)
    declared, guess = _as(raw, codec), guessed_encoding(raw)
    if guess is None or not guess.is_certain:
        return declared
    read = _as(raw, guess.encoding)
    note = f"encoding guessed: {guess.encoding}, not {codec} as declared"
    return declared if read.text == declared.text else ReadText(read.text, (note, *read.omitted))


def _undeclared(raw: bytes) -> ReadText:
    """Return the text of bytes that may have a few errors. Raises NoTextError."""
    if read := _as_utf_8(raw, "cp1252" if raw.startswith(codecs.BOM_UTF8) else ""):
        return read
    guess = guessed_encoding(raw)
    if guess is None:
        raise NoTextError("is not text in an encoding that can be told; save it as UTF-8")
    read = _as(raw, guess.encoding)
    if guess.encoding in _OF_SINGLE_LETTERS:
        read = _as_utf_8(raw, guess.encoding) or read
    unsure = () if guess.is_certain else (_UNSURE.format(guess.encoding),)
    return ReadText(read.text, (*unsure, *read.omitted))


def _as_utf_8(raw: bytes, other: str = "") -> ReadText | None:
    """Return a text in UTF-8 of which a few bytes are in an `other` encoding; None if it is none.

    Without the other encoding's name, most of what is beyond ASCII must be UTF-8.
    """
    text = _HALVES.sub(_joined, raw).decode("utf-8", "surrogateescape")
    stray = len(text) - len(text.encode("utf-8", "ignore").decode())
    right = len(text) - len(text.encode("ascii", "ignore")) - stray
    if stray and (right < stray if not other else not right):
        return None
    name = other or "cp1252"
    table = {
        _FIRST_STRAY + byte: bytes([byte]).decode(name, "replace") for byte in range(0x80, 0x100)
    }
    note = f"{number_of(stray, 'byte')} that are not UTF-8, read as {name}"
    text = text.removeprefix("\ufeff")
    return ReadText(text.translate(table), (note,)) if stray else ReadText(text)


def _as(raw: bytes, codec: str) -> ReadText:
    """Return the text in an encoding, and how much of it is none."""
    text = raw.decode(codec, "replace")
    lost = text.count("\ufffd")
    return ReadText(text, (f"{number_of(lost, 'character')} lost, not {codec}",) if lost else ())


def _joined(halves: re.Match[bytes]) -> bytes:
    text = halves[0].decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass")
    return text.decode("utf-16").encode()


def _declared(raw: bytes) -> str | None:
    shown, *comments = raw[:_DECLARED_WITHIN].split(b"<!--")
    after = (comment.partition(b"-->")[2] for comment in comments)
    tags = _DECLARING.finditer(b"".join((shown, *after)))
    names = ((_BY_XML if tag[1] else _BY_META).search(tag[2]) for tag in tags)
    declared = next(filter(None, names), None)
    return None if declared is None else _codec(declared[1].decode().lower())


def _codec(name: str) -> str | None:
    """Return an encoding by its name, as Python calls it; None if no page is written in it."""
    name = _WIDER.get(name, name)
    if name.startswith(("utf-16", "utf-32", "utf16", "utf32")):
        return None  # a declaration of UTF-16 or UTF-32 is wrong: it was just read as ASCII
    try:
        codec = codecs.lookup(name).name
    except LookupError:
        return None
    return codec if codec.startswith(_OF_PAGES) else None
