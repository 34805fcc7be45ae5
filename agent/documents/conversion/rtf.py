"""Extracts plain text from RTF: one pass over its tokens, with a stack of groups."""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from docllm.schemas.text.document_text import NoTextError, ReadText
from docllm.schemas.text.wording import number_of

# A control word with its number, a byte in hex, a control sign, a brace, or text.
_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32}+)(?>(-?\d{1,10}+)?) ?|\\'([0-9a-fA-F]{2})|\\(.)"
    rb"|([{}])|[\r\n\0]++|([^\\{}\r\n\0]++)",
    re.DOTALL,
)
# Groups without text of the document itself, by their first word.
_UNSHOWN = frozenset(
    "annotation atnid bkmkend bkmkstart colortbl comment datafield datastore fldinst footer "
    "footerf footerl footerr filetbl header headerf headerl headerr info latentstyles listtable "
    "listoverridetable nonesttables nonshppict objdata pict private revtbl rsidtbl rxe sn sp "
    "stylesheet shprslt sv tc themedata xe".split()
)
_SHOWN = frozenset({"nesttableprops", "shpinst", "shptxt"})  # of those that others may leave out
_FONTS = "fonttbl"
_CELL = " | "
_SIGNS = {
    "par": "\n",
    "line": "\n",
    "sect": "\n",
    "page": "\n",
    "row": "\n",
    "nestrow": "\n",
    "tab": "\t",
    "cell": _CELL,
    "nestcell": _CELL,
    "emdash": "\N{EM DASH}",
    "endash": "\N{EN DASH}",
    "bullet": "\N{BULLET}",
    "lquote": "\N{LEFT SINGLE QUOTATION MARK}",
    "rquote": "\N{RIGHT SINGLE QUOTATION MARK}",
    "ldblquote": "\N{LEFT DOUBLE QUOTATION MARK}",
    "rdblquote": "\N{RIGHT DOUBLE QUOTATION MARK}",
    "emspace": " ",
    "enspace": " ",
    "footnote": " / ",
}
_ESCAPED = {b"\\": b"\\", b"{": b"{", b"}": b"}"}
_SPACES = {b"~": "\N{NO-BREAK SPACE}", b"_": "-", b"\n": "\n", b"\r": "\n"}
_ENCODINGS = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850", "ansi": "cp1252"}
_CHARSETS = {
    77: "mac_roman",
    128: "cp932",
    129: "cp949",
    130: "johab",
    134: "gb18030",
    136: "cp950",
    161: "cp1253",
    162: "cp1254",
    163: "cp1258",
    177: "cp1255",
    178: "cp1256",
    186: "cp1257",
    204: "cp1251",
    222: "cp874",
    238: "cp1250",
    255: "cp437",
}
_CODE_PAGES = {65001: "utf-8", 10000: "mac_roman"}


@dataclass(slots=True)
class _RtfGroup:
    """What holds until a group's end."""

    encoding: str = ""  # "" is that of the document
    fallback: int = 1  # how many characters after `\\u` stand for those who cannot read it
    shown: bool = True
    fonts: bool = False
    hidden: bool = False


def text_of_rtf(raw: bytes) -> ReadText:
    """Return the text of an RTF document. Raises NoTextError."""
    reader = _Reader(raw.removeprefix(codecs.BOM_UTF8))
    reader.read()
    lines = (line.rstrip().removesuffix(_CELL.rstrip()) for line in reader.text().split("\n"))
    text = "\n".join(lines).strip()
    omitted = tuple(
        number_of(count, noun)
        for noun, count in (("embedded file", reader.objects), ("comment", reader.comments))
        if count
    )
    if not text:
        raise NoTextError("is RTF without text in it; if it shows pages as pictures, run OCR first")
    return ReadText(text, omitted)


class _Reader:
    """Reads the tokens of one document."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._document = "cp1252"
        self._fonts: dict[int, str] = {}
        self._font = 0
        self._group = _RtfGroup()
        self._groups: list[_RtfGroup] = []
        self._pending = bytearray()
        self._parts: list[str] = []
        self._to_skip = 0
        self._starred = False
        self.objects = 0
        self.comments = 0

    def text(self) -> str:
        """Return the text so far; surrogate pairs become characters."""
        self._flush()
        return "".join(self._parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def read(self) -> None:
        """Read all tokens."""
        for match in self._tokens():
            word, number, byte, sign, brace, text = match.groups()
            if brace:
                self._brace(opens=brace == b"{")
            elif word:
                self._word(word.decode(), None if number is None else int(number))
            elif byte:
                self._add(bytes((int(byte, 16),)))
            elif sign:
                self._sign(sign)
            elif text:
                self._add(text)

    def _tokens(self) -> Iterator[re.Match[bytes]]:
        """Yield the tokens; binary data is passed over by its length."""
        at = 0
        while match := _TOKEN.match(self._raw, at):
            at = match.end()
            if match[1] == b"bin":
                at += max(0, int(match[2] or 0))
            else:
                yield match

    def _brace(self, *, opens: bool) -> None:
        self._flush()
        self._to_skip, self._starred = 0, False
        if opens:
            self._groups.append(self._group)
            self._group = replace(self._group)
        elif self._groups:
            self._group = self._groups.pop()

    def _sign(self, sign: bytes) -> None:
        if sign == b"*":
            self._starred = True
        elif sign in _ESCAPED:
            self._add(_ESCAPED[sign])
        elif sign in _SPACES:
            self._put(_SPACES[sign])

    def _word(self, word: str, number: int | None) -> None:
        group, starred = self._group, self._starred
        self._starred = False
        if word in _UNSHOWN or (starred and word not in _SHOWN):
            self.comments += word == "annotation"
            group.shown = False
        elif word == _FONTS:
            group.shown, group.fonts = False, True
        elif word == "u":
            self._put(chr((number or 0) & 0xFFFF))
            self._to_skip = group.fallback
        elif word == "uc":
            group.fallback = max(0, number or 0)
        elif word in {"v", "deleted"}:
            self._flush()
            group.hidden = number != 0
        elif word == "plain":
            self._flush()
            group.hidden = False
        elif word in _SIGNS:
            self._put(_SIGNS[word])
        elif word == "object":
            self.objects += 1
        else:
            self._set_encoding(word, number)

    def _set_encoding(self, word: str, number: int | None) -> None:
        group = self._group
        if word == "f":
            self._flush()
            self._font = number or 0
            group.encoding = self._fonts.get(self._font, "")
        elif word == "fcharset" and group.fonts:
            self._fonts[self._font] = _CHARSETS.get(number or 0, "")
        elif word in _ENCODINGS:
            self._document = _ENCODINGS[word]
        elif word == "ansicpg":
            name = _CODE_PAGES.get(number or 0, f"cp{number}")
            try:
                self._document = codecs.lookup(name).name
            except LookupError:
                self._document = "cp1252"

    def _add(self, raw: bytes) -> None:
        """Add bytes in the encoding of their font."""
        skipped = min(self._to_skip, len(raw))
        self._to_skip -= skipped
        if self._group.shown and not self._group.hidden:
            self._pending += raw[skipped:]

    def _put(self, text: str) -> None:
        self._flush()
        self._to_skip = 0
        if self._group.shown and not self._group.hidden:
            self._parts.append(text)

    def _flush(self) -> None:
        if self._pending:
            encoding = self._group.encoding or self._document
            self._parts.append(self._pending.decode(encoding, "replace"))
            self._pending.clear()
