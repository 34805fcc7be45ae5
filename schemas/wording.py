"""Texts of strangers, made fit to be shown: errors of a provider, above all. Every pattern runs in linear time."""

import re

TEXT_CHARS = 500
_READ_CHARS = 4000

_KEY = re.compile(r"(?i)\b(?:(?:sk|pk|rk|gsk|hf|xai|key)[-_]|AIza)[\w*.-]{6,}|\b(bearer|api[_-]?key)[\s:=]+[\w*.+/=~-]{6,}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")


def one_line(text: str) -> str:
    """Return the text on one line of at most 500 characters, with whatever looks like a key masked."""
    flat = _UNPRINTABLE.sub(" ", text[:_READ_CHARS]).strip()
    return _KEY.sub("***", flat)[:TEXT_CHARS]
