"""Decodes text that is not UTF-8, by its byte order mark or by the statistics of its bytes."""

import codecs
import re

from docllm.schemas.documents.extra import needed
from docllm.schemas.documents.kind import bom_encoding, is_utf8, unicode_encoding
from docllm.schemas.documents.signs import seven_bit_encoding
from docllm.schemas.text.document_text import NoTextError

# The encodings that are told apart, the most usual first: it wins between equals.
_ENCODINGS = (
    "cp1252 cp1250 cp1251 cp1253 cp1254 cp1255 cp1256 koi8_r shift_jis euc_jp gb18030 big5 euc_kr"
).split()
_SAMPLE_BYTES = 1 << 18
# The tags that declare the encoding of an HTML page or an XML file, and how each of them does. A
# tag is cut out before it is searched, so no byte is read for more than one of them.
_DECLARING = re.compile(rb"<(?:meta|(\?xml))([^>]*+)", re.IGNORECASE)
_BY_META = re.compile(rb"charset\s*+=\s*+[\"']?+\s*+([\w.:-]++)", re.IGNORECASE)
_BY_XML = re.compile(rb"encoding\s*+=\s*+[\"']([\w.:-]++)", re.IGNORECASE)
_DECLARED_WITHIN = 4096
# Encodings that pages use, as Python calls them; others are no text, or take quadratic time.
_OF_PAGES = tuple(
    "ascii big5 cp125 cp866 cp874 cp932 cp949 euc_ gb hz iso2022 iso8859 koi8 mac shift utf-7 "
    "utf-8".split()
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


def decoded_text(raw: bytes) -> str:
    """Return the text of bytes that are text in some encoding. Raises NoTextError."""
    if seven_bit := seven_bit_encoding(raw):
        return raw.decode(seven_bit, "replace")
    encoding = bom_encoding(raw) or unicode_encoding(raw)
    encoding = encoding or ("utf-8" if is_utf8(raw) else _detected(raw))
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        raise NoTextError(f"is not the {encoding.upper()} of its byte order mark") from None
    if "\0" in text:
        raise NoTextError("is not text: it has a zero character")
    return text


def page_text(raw: bytes) -> str:
    """Return an HTML page's source; without a byte order mark, by its declared encoding.

    What cannot be decoded is replaced, as in a browser. Raises NoTextError.
    """
    declared = None if unicode_encoding(raw) or bom_encoding(raw) else _declared(raw)
    return decoded_text(raw) if declared is None else _as_declared(raw, declared)


def text_in(raw: bytes, declared: str) -> str | None:
    """Return the text of bytes in an encoding that their sender declares; None if it is unknown."""
    codec = _codec(declared.lower())
    return None if codec is None else _as_declared(raw, codec).replace("\0", "")


def _as_declared(raw: bytes, codec: str) -> str:
    """Return a text by its declared encoding, unless its bytes are UTF-8 all the same."""
    is_other = raw.isascii() or not is_utf8(raw)
    return raw.decode(codec if is_other else "utf-8", "replace")


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


def _detected(raw: bytes) -> str:
    """Return the most likely encoding. Raises NoTextError if none fits."""
    with needed("text that is not UTF-8"):
        from charset_normalizer import from_bytes  # noqa: PLC0415 - of the extra

    matches = from_bytes(_sample(raw), cp_isolation=_ENCODINGS)
    likely = [
        name
        for match in matches
        if (match.chaos, match.coherence) == (matches[0].chaos, matches[0].coherence)
        for name in match.could_be_from_charset
    ]
    for name in sorted(likely, key=_ENCODINGS.index):
        if _decodes(raw, name):
            return name
    raise NoTextError("is not text in an encoding that can be told; save it as UTF-8")


def _decodes(raw: bytes, encoding: str) -> bool:
    try:
        raw.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _sample(raw: bytes) -> bytes:
    """Return the first lines, or the whole text if it has one line; no character is cut."""
    if len(raw) <= _SAMPLE_BYTES:
        return raw
    return raw[: raw.rfind(b"\n", 0, _SAMPLE_BYTES) + 1] or raw
