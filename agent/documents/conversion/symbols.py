# ruff: noqa: RUF001 - these characters are the table
"""What the characters of symbol fonts stand for: their codes alone would be other letters."""

_SYMBOL = "Symbol"
_FIRST = 0x20
_PRIVATE = 0xF000  # Office writes a code of such a font as this plus the code
_UNKNOWN = "\0"
# By code, from 0x20 and from 0xA0; between the two there is nothing.
_GREEK = (
    " !∀#∃%&∍()*+,−./0123456789:;<=>?"
    "≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_"
    "‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}~" + 33 * _UNKNOWN + "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵"
    "ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓"
    "◊〈®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪\0〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭\0"
)
# What Office itself uses of its fonts of pictures: bullets, arrows, ticks and check boxes.
_PICTURES = {
    "Wingdings": {
        0x4A: "☺", 0x4C: "☹", 0x6C: "●", 0x6E: "■", 0x6F: "☐", 0x71: "❑", 0x72: "❒",
        0x74: "◆", 0x75: "◆", 0x76: "❖", 0x78: "☒", 0x9F: "•", 0xA7: "▪", 0xA8: "☐",
        0xAB: "★", 0xD8: "➢", 0xDF: "←", 0xE0: "→", 0xE1: "↑", 0xE2: "↓", 0xE7: "←",
        0xE8: "→", 0xE9: "↑", 0xEA: "↓", 0xEF: "⇦", 0xF0: "⇨", 0xF1: "⇧", 0xF2: "⇩",
        0xF3: "⬄", 0xFB: "✗", 0xFC: "✓", 0xFD: "☒", 0xFE: "☑",
        **{0x81 + number: chr(0x2780 + number) for number in range(10)},
        **{0x8C + number: chr(0x278A + number) for number in range(10)},
    },
    "Wingdings 2": {0x4F: "✗", 0x50: "✓", 0x51: "☒", 0x52: "☑", 0x53: "☒", 0x54: "☒", 0xA3: "☐"},
    "Wingdings 3": {0x7D: "▶", 0x7C: "◀"},
    "Webdings": {0x61: "✓", 0x63: "□", 0x67: "■", 0x72: "✗"},
}  # fmt: skip


def symbol(font: str, code: int) -> str | None:
    """Return the character that a symbol font shows for a code; None if it is not known."""
    code = code - _PRIVATE if code >= _PRIVATE else code
    if font == _SYMBOL:
        shown = _GREEK[code - _FIRST : code - _FIRST + 1] if code >= _FIRST else ""
        return shown if shown not in {"", _UNKNOWN} else None
    return _PICTURES.get(font, {}).get(code)
