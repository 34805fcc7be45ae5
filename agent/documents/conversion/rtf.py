"""Extracts plain text from RTF: one pass over its tokens, with a stack of groups."""

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterator
from xml.etree.ElementTree import Element, SubElement

from docllm.agent.documents.conversion.docx_math import math_line
from docllm.agent.documents.conversion.form_fields import FormField
from docllm.agent.documents.conversion.rtf_fonts import RtfFonts, code_page
from docllm.agent.documents.conversion.rtf_words import (
    CELL,
    DATA,
    EQUATIONS,
    FOOTERS,
    HEADERS,
    READ_STARRED,
    SIGNS,
    UNSHOWN,
    UNSHOWN_STARRED,
)
from docllm.schemas.text.document_text import NoTextError, ReadText
from docllm.schemas.text.wording import number_of

# A control word with its number, a byte in hex, a control sign, a brace, or text.
_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32}+)(?>(-?\d{1,10}+)?) ?|\\'([0-9a-fA-F]{2})|\\(.)"
    rb"|([{}])|[\r\n\0]++|([^\\{}\r\n\0]++)",
    re.DOTALL,
)
_NUMBER, _HEX, _SIGN, _BRACE, _TEXT = 2, 3, 4, 5, 6  # of the groups of a token
_VALUES = frozenset("begChr chr endChr sepChr".split())  # of an equation
_BETWEEN = "\n\n"
_ESCAPED = {b"\\": b"\\", b"{": b"{", b"}": b"}"}
_SPACES = {b"~": "\N{NO-BREAK SPACE}", b"_": "-", b"\n": "\n", b"\r": "\n", b"\t": "\t"}
_ENCODINGS = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850", "ansi": "cp1252"}
_HIDDEN, _BINARY = "hidden text", "piece of binary data"
_WORD_ART = "gtextUNICODE"  # the property of a shape that is text
_UNSET = 25  # the result of a field that has only a default
_PRIVATE = range(0xF020, 0xF100)
_HAS_WORD = re.compile(r"[^\W\d_a-fA-F]")  # what is no number in hex


class _RtfGroup:
    """What holds until a group's end; `close` takes the text of one that has a sink of its own."""

    __slots__ = (
        "close",
        "fallback",
        "font",
        "fonts",
        "hidden",
        "mark",
        "owns",
        "shown",
        "sink",
        "upr",
    )

    def __init__(self, outer: "_RtfGroup | None" = None) -> None:
        self.close: Callable[[str], None] | None = None
        self.owns = False  # whether the sink is its own
        self.upr = False  # whether only the group of Unicode in it is read
        if outer is None:
            self.sink: list[str] = []
            self.font: int | None = None
            self.fallback = 1  # how many characters after `\\u` are for those who cannot read it
            self.shown, self.fonts, self.hidden = True, False, False
            self.mark = 0  # how much text there was before the shape that it is in
        else:
            self.sink, self.font, self.fallback = outer.sink, outer.font, outer.fallback
            self.shown, self.fonts, self.hidden = outer.shown, outer.fonts, outer.hidden
            self.mark = outer.mark
            if outer.upr:
                self.shown = False


def text_of_rtf(raw: bytes) -> ReadText:
    """Return the text of an RTF document. Raises NoTextError."""
    reader = _Reader(raw.removeprefix(codecs.BOM_UTF8))
    reader.read()
    lines = (line.rstrip().removesuffix(CELL.rstrip()) for line in reader.text().split("\n"))
    text = "\n".join(lines).strip()
    omitted = tuple(reader.lost())
    if not text:
        reason = f", but {', '.join(omitted[:3])}" if omitted else ""
        raise NoTextError(
            f"is RTF without text in it{reason}; if it shows pages as pictures, run OCR first"
        )
    return ReadText(text, omitted)


class _Reader:
    """Reads the tokens of one document."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._fonts = RtfFonts()
        self._font = 0  # in the table of fonts
        self._group = _RtfGroup()
        self._parts = self._group.sink
        self._groups: list[_RtfGroup] = []
        self._headers: dict[str, None] = {}
        self._footers: dict[str, None] = {}
        self._pending = bytearray()
        self._to_skip = 0
        self._starred = False
        self._begun = False  # whether the next word is a group's first
        self._count = 0  # of the pieces of text of the document itself
        self._fields: list[FormField] = []
        self._equation: list[Element] = []
        self._property = ""
        self._counts: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        self._destinations = self._by_word()

    def text(self) -> str:
        """Return the text so far; surrogate pairs become characters."""
        while self._groups:  # the end of the file ends all groups
            self._end_group()
        self._flush()
        whole = (*self._headers, "".join(self._parts), *self._footers)
        text = _BETWEEN.join(part.strip("\n") for part in whole if part.strip())
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def lost(self) -> Iterator[str]:
        """Yield what holds text and is not read."""
        if self._fonts.symbols:
            self._counts["symbol"] = self._fonts.symbols
        for noun, count in self._counts.items():
            if count:
                yield noun if noun == _HIDDEN else number_of(count, noun)
        yield from (f"group {word}" for word in self._unknown)

    def read(self) -> None:
        """Read all tokens."""
        for match in self._tokens():
            kind = match.lastindex
            if kind is None:
                continue  # a line break of the file, not of the text
            if kind <= _NUMBER:
                self._word(match)
            elif kind == _BRACE:
                self._brace(opens=match[_BRACE] == b"{")
            elif kind == _HEX:
                self._add(bytes((int(match[_HEX], 16),)))
            elif kind == _SIGN:
                self._sign(match[_SIGN])
            else:
                self._add(match[_TEXT])

    def _tokens(self) -> Iterator[re.Match[bytes]]:
        """Yield the tokens; binary data is passed over by its length."""
        at = 0
        while match := _TOKEN.match(self._raw, at):
            at = match.end()
            if match[1] == b"bin":
                at += max(0, int(match[2] or 0))
                self._counts[_BINARY] += self._group.shown  # no picture: those are not shown
            else:
                yield match

    def _brace(self, *, opens: bool) -> None:
        self._flush()
        self._to_skip, self._starred, self._begun = 0, False, opens
        if opens:
            self._groups.append(self._group)
            self._group = _RtfGroup(self._group)
        elif self._groups:
            self._end_group()

    def _end_group(self) -> None:
        self._flush()
        ended, self._group = self._group, self._groups.pop()
        if ended.close is not None:
            ended.close("".join(ended.sink) if ended.owns else "")

    def _sign(self, sign: bytes) -> None:
        if sign == b"*":
            self._starred = True
        elif sign in _ESCAPED:
            self._add(_ESCAPED[sign])
        elif sign in _SPACES:
            self._put(_SPACES[sign])

    def _word(self, match: re.Match[bytes]) -> None:
        word = match[1].decode()
        number = None if match[2] is None else int(match[2])
        starred, begun = self._starred, self._begun
        self._starred = self._begun = False
        if self._equation and begun and word[0] == "m" and self._group.shown:
            self._begin_equation(word)
        elif destination := self._destinations.get(word):
            self._flush()
            destination(word, number)
        elif word in (UNSHOWN_STARRED if starred else UNSHOWN if begun else DATA):
            self._flush()
            self._counts["comment"] += word == "annotation"
            self._group.shown = self._group.fonts = False
        elif starred and word not in READ_STARRED:
            self._capture(lambda text: self._name(word, text))
        elif word in SIGNS:
            self._put(SIGNS[word])
        elif word in _ENCODINGS:
            self._fonts.document = _ENCODINGS[word]

    def _by_word(self) -> dict[str, Callable[[str, int | None], None]]:
        """Return what is done at each word that has a meaning of its own."""
        return {
            "ansicpg": self._set_page,
            "cpg": self._set_page,
            "deff": self._set_font,
            "deleted": self._hide,
            "f": self._set_font,
            "fcharset": self._set_font,
            "ffdefres": self._form,
            "ffl": self._form,
            "ffres": self._form,
            "fftype": self._form,
            "field": self._field,
            "fldinst": self._field,
            "fldrslt": self._field,
            "fonttbl": self._font_table,
            "formfield": self._form,
            "object": self._object,
            "plain": self._hide,
            "shp": self._shape,
            "shprslt": self._shape,
            "sn": self._shape,
            "sv": self._shape,
            "u": self._unicode,
            "uc": self._unicode,
            "ud": self._unicode,
            "upr": self._unicode,
            "v": self._hide,
            **dict.fromkeys(EQUATIONS, self._new_equation),
            **dict.fromkeys(HEADERS | FOOTERS, self._margin),
        }

    def _capture(self, close: Callable[[str], None]) -> None:
        """Give the text of this group to `close` instead of its outer group, if it is shown."""
        group = self._group
        if group.shown:
            self._flush()
            if group.close is not None:  # a second destination in one group ends the first
                group.close("".join(group.sink) if group.owns else "")
            group.sink, group.owns, group.close = [], True, close

    def _name(self, word: str, text: str) -> None:
        if _HAS_WORD.search(text):
            self._unknown[word] += 1

    def _margin(self, word: str, _number: object) -> None:
        texts = self._headers if word in HEADERS else self._footers
        self._capture(lambda text: texts.setdefault(text.strip()))

    def _object(self, _word: object, _number: object) -> None:
        self._counts["embedded file"] += 1

    def _hide(self, word: str, number: int | None) -> None:
        self._flush()
        if word == "plain":
            self._group.hidden, self._group.font = False, None
        elif word == "v":
            self._group.hidden = number != 0
        else:
            self._group.shown = self._group.shown and number == 0

    def _unicode(self, word: str, number: int | None) -> None:
        group = self._group
        if word == "u":
            code = (number or 0) & 0xFFFF
            self._put(self._fonts.sign(group.font, code) if code in _PRIVATE else chr(code))
            self._to_skip = group.fallback
        elif word == "uc":
            group.fallback = max(0, number or 0)
        elif word == "upr":
            group.upr = True
        elif self._groups and self._groups[-1].upr:
            group.shown = self._groups[-1].shown

    def _set_font(self, word: str, number: int | None) -> None:
        self._flush()
        if word == "deff":
            self._fonts.default = number or 0
        elif word == "f":
            self._font = self._group.font = number or 0
        elif self._group.fonts:
            self._fonts.set_charset(self._font, number or 0)

    def _set_page(self, word: str, number: int | None) -> None:
        if word == "ansicpg":
            self._fonts.document = code_page(number or 0)
        elif self._group.fonts:
            self._fonts.set_page(self._font, number or 0)

    def _font_table(self, _word: object, _number: object) -> None:
        self._group.shown, self._group.fonts = False, True

    def _field(self, word: str, _number: object) -> None:
        if word == "field":
            self._fields.append(FormField(self._count))
            if self._group.close is None:
                self._group.close = self._end_field
        elif self._fields and word == "fldinst":
            self._capture(self._instruct)
        elif self._fields:
            self._fields[-1].shown = self._count

    def _instruct(self, text: str) -> None:
        self._fields[-1].instruct(text)
        self._fields[-1].shown = self._count

    def _end_field(self, _text: str) -> None:
        ended = self._fields.pop()
        if ended.shown == self._count:
            self._put(ended.text())

    def _form(self, word: str, number: int | None) -> None:
        if not self._fields:
            return
        field = self._fields[-1]
        if word == "ffl":
            self._capture(lambda text: field.set("listEntry", text))
        elif word == "formfield":
            self._capture(lambda _: None)
        elif word == "fftype":
            if number == 1:
                field.set("checkbox", "")
        elif word == "ffdefres":
            field.set("default", str(number or 0))
        elif number != _UNSET:
            field.set("result", str(number or 0))
            field.set("checked", str(number or 0))

    def _shape(self, word: str, _number: object) -> None:
        group = self._group
        if word == "shp":
            group.mark = self._count
        elif word == "shprslt":  # the shape as old readers know it
            group.shown = group.shown and self._count == group.mark
        elif word == "sn":
            self._capture(self._set_property)
        elif self._property == _WORD_ART:
            self._put("\n")
        else:
            group.shown = False

    def _set_property(self, text: str) -> None:
        self._property = text.strip()

    def _new_equation(self, word: str, _number: object) -> None:
        if self._group.shown and not self._equation:
            self._equation.append(Element(word[1:]))
            self._capture(self._end_equation)

    def _end_equation(self, text: str) -> None:
        root = self._equation[0]
        self._equation.clear()
        if text:
            SubElement(root, "t").text = text
        self._put(math_line(root))

    def _begin_equation(self, word: str) -> None:
        """Begin a part of an equation: its words are those of DOCX with an `m` before them."""
        element = SubElement(self._equation[-1], word[1:])
        self._equation.append(element)

        def close(text: str) -> None:
            if len(self._equation) > 1:
                self._equation.pop()
            if element.tag in _VALUES:
                element.set("val", text)
            elif text:
                SubElement(element, "t").text = text

        self._capture(close)

    def _add(self, raw: bytes) -> None:
        """Add bytes in the encoding of their font."""
        self._begun = False
        group = self._group
        if self._to_skip:
            skipped = min(self._to_skip, len(raw))
            self._to_skip -= skipped
            raw = raw[skipped:]
        if group.fonts:
            self._fonts.add_name(self._font, raw)
        elif group.shown:
            self._pending += raw

    def _put(self, text: str) -> None:
        self._flush()
        self._to_skip = 0
        group = self._group
        if group.shown and text:
            if group.hidden:
                self._counts[_HIDDEN] += not text.isspace()
            else:
                self._count += group.sink is self._parts and not text.isspace()
                group.sink.append(text)

    def _flush(self) -> None:
        if self._pending:
            text = self._fonts.text(self._group.font, bytes(self._pending))
            self._pending.clear()
            to_skip = self._to_skip
            self._put(text)
            self._to_skip = to_skip
