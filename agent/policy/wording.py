"""Error texts: made fit to be shown, and reduced to what they have in common. Every pattern runs in linear time."""

import hashlib
import re

TEXT_CHARS = 500
_READ_CHARS = 4000
_HEX_CHARS = 8

_KEY = re.compile(r"(?i)\b(?:(?:sk|pk|rk|gsk|hf|xai|key)[-_]|AIza)[\w*.-]{6,}|\b(bearer|api[_-]?key)[\s:=]+[\w*.+/=~-]{6,}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")
_QUOTED = re.compile(r"\"[^\"]*\"|`[^`]*`|'[^']*'")
_WORD = re.compile(r"\w+")
_NUMBERS = re.compile(r"#(?:[-.:/,]#)*")
_HEX = frozenset("0123456789abcdef")


def one_line(text: str) -> str:
    """Return the text on one line of at most 500 characters, with whatever looks like a key masked."""
    flat = _UNPRINTABLE.sub(" ", text[:_READ_CHARS]).strip()
    return _KEY.sub("***", flat)[:TEXT_CHARS]


def fingerprint(error_class: str, text: str) -> bytes:
    """Return 16 bytes that are the same for errors that differ only in numbers, ids and quoted text."""
    common = _QUOTED.sub("", text[:_READ_CHARS].lower())
    common = _NUMBERS.sub("#", _WORD.sub(_without_number, common))
    return hashlib.blake2b(f"{error_class}\0{' '.join(common.split())}".encode("utf-8", "replace"), digest_size=16).digest()


def _without_number(found: re.Match[str]) -> str:
    word = found[0]
    is_id = any(letter.isdigit() for letter in word) or (len(word) >= _HEX_CHARS and _HEX.issuperset(word))
    return "#" if is_id else word
