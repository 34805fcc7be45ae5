"""The fonts of an RTF document, which say the encodings of its bytes."""

import codecs

from docllm.agent.documents.conversion.symbols import symbol

WESTERN = "cp1252"
_SYMBOLS = 2
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
# How Windows once named the fonts of other alphabets.
_BY_ENDING = {
    " CE": "cp1250",
    " Cyr": "cp1251",
    " Greek": "cp1253",
    " Tur": "cp1254",
    " (Hebrew)": "cp1255",
    " (Arabic)": "cp1256",
    " Baltic": "cp1257",
}
_NAME_CHARS = 100


class RtfFonts:
    """The fonts by their numbers; `document` is the encoding where a font says none."""

    def __init__(self) -> None:
        self.document = WESTERN
        self.default = 0
        self.symbols = 0  # how many signs of symbol fonts are not known
        self._charsets: dict[int, int] = {}
        self._pages: dict[int, str] = {}
        self._names: dict[int, str] = {}

    def set_charset(self, font: int, charset: int) -> None:
        """Set which characters a font has."""
        self._charsets[font] = charset

    def set_page(self, font: int, number: int) -> None:
        """Set the code page of a font."""
        self._pages[font] = code_page(number)

    def add_name(self, font: int, name: bytes) -> None:
        """Add a part of a font's name."""
        known = self._names.get(font, "")
        self._names[font] = (known + name.decode("latin-1").rstrip(";"))[:_NAME_CHARS]

    def text(self, font: int | None, raw: bytes) -> str:
        """Return the text of bytes; a font of None is the default one."""
        font = self.default if font is None else font
        charset = self._charsets.get(font)
        if charset == _SYMBOLS:
            return "".join(self.sign(font, code) for code in raw)
        name = self._names.get(font, "")
        encoding = self._pages.get(font) or _CHARSETS.get(charset or 0)
        if encoding is None:
            encodings = (page for ending, page in _BY_ENDING.items() if name.endswith(ending))
            encoding = next(encodings, self.document)
        return raw.decode(encoding, "replace")

    def sign(self, font: int | None, code: int) -> str:
        """Return the character of a code in a symbol font."""
        name = self._names.get(self.default if font is None else font, "").strip()
        shown = symbol(name or "Symbol", code)
        if shown is None:
            self.symbols += 1
        return chr(code) if shown is None else shown


def code_page(number: int) -> str:
    """Return an encoding by its number; an unknown one is read as that of Western Europe."""
    name = _CODE_PAGES.get(number, f"cp{number}")
    try:
        return codecs.lookup(name).name
    except LookupError:
        return WESTERN
