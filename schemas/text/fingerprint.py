"""A short name for errors that are alike.

Fingerprints are stored, so the function must never change. Every pattern runs in linear time.
"""

import hashlib
import re

_READ_CHARS = 4000
_HEX_CHARS = 8

_QUOTED = re.compile(r"\"[^\"]*+\"|`[^`]*+`|'[^']*+'")
_WORD = re.compile(r"\w+")
_NUMBERS = re.compile(r"#(?>(?:[-.:/,]#)*)")
_HEX = frozenset("0123456789abcdef")


def fingerprint(error_class: str, text: str) -> bytes:
    """Return 16 bytes that are equal for errors that differ only in numbers, ids and quotes.

    Quotes are texts in quotation marks.
    """
    common = _QUOTED.sub("", text[:_READ_CHARS].lower())
    common = _NUMBERS.sub("#", _WORD.sub(_without_number, common))
    name = f"{error_class}\0{' '.join(common.split())}"
    return hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=16).digest()


def _without_number(match: re.Match[str]) -> str:
    word = match[0]
    is_id = any(letter.isdigit() for letter in word) or (
        len(word) >= _HEX_CHARS and _HEX.issuperset(word)
    )
    return "#" if is_id else word
