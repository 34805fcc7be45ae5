"""Makes the texts over which a regular expression is slow, if its form permits that.

Each of its repetitions is fed: after what must come before it, with what it takes, and with an end
that no part takes, so that every other way to match is tried.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from tests.support.pattern_forms import CODES, LOOKS, REPEATS, Part, bodies, parse

_FEW = 10
_ENDS = ("\x00", "\u20ac", "")
_LETTERS = "a0 -_.:/<\"'\\=\n~é"

Attack = Callable[[int], Any]


def attacks(pattern: str | bytes, flags: int = 0) -> Iterator[Attack]:
    """Yield functions that return texts of about a length."""
    is_bytes = isinstance(pattern, bytes)
    for prefix, fed in dict.fromkeys(_fed(parse(pattern, flags), "")):
        for end in _ENDS:
            yield partial(_text, prefix, fed, end, is_bytes)
            yield partial(_text, "", prefix + fed, end, is_bytes)


def _text(prefix: str, fed: str, end: str, is_bytes: bool, length: int) -> str | bytes:  # noqa: FBT001 - for partial
    text = prefix + fed * (length // len(fed)) + end
    return text.encode("latin-1", "replace") if is_bytes else text


def _fed(parts: Sequence[Part], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield what comes before each repetition, with what it takes."""
    for part in parts:
        code, value = part
        inner = bodies(part)
        if code in REPEATS and value[1] > _FEW:
            whole = "".join(_samples(inner[0]))
            for text in {whole, *_samples(inner[0]), prefix[:1]}:
                if text:
                    yield prefix, text
        for body in inner:
            yield from _fed(body, prefix)
        prefix += _sample([part])


def _samples(body: Sequence[Part]) -> list[str]:
    """Return a text for each alternative of a repeated part."""
    if len(body) == 1 and body[0][0] is CODES.SUBPATTERN:
        return _samples(bodies(body[0])[0])
    if len(body) == 1 and body[0][0] is CODES.BRANCH:
        return [_sample(branch) for branch in bodies(body[0])]
    return [_sample(body)]


def _sample(parts: Sequence[Part]) -> str:
    """Return a text that parts match, or nearly."""
    return "".join(_one(part) for part in parts)


def _one(part: Part) -> str:
    code, value = part
    inner = bodies(part)
    if code is CODES.LITERAL:
        return chr(value)
    if code in {CODES.IN, CODES.ANY, CODES.NOT_LITERAL}:
        return _letter(part)
    if code in REPEATS:
        return str(_sample(inner[0]) * min(max(value[0], 0), _FEW))
    return "" if code in LOOKS or not inner else _sample(inner[0])


def _letter(part: Part) -> str:
    """Return a letter of a class."""
    code, value = part
    if code is CODES.ANY:
        return "a"
    if code is CODES.NOT_LITERAL:
        return next(letter for letter in _LETTERS if letter != chr(value))
    first, low = value[0]
    if first is CODES.LITERAL:
        return chr(low)
    if first is CODES.RANGE:
        return chr(low[0])
    if first is CODES.NEGATE:
        named = {chr(inner) for kind, inner in value if kind is CODES.LITERAL}
        blank = any(kind is CODES.CATEGORY for kind, _ in value)
        return next(
            letter for letter in _LETTERS if letter not in named and not (blank and letter in " \n")
        )
    categories = {CODES.CATEGORY_DIGIT: "1", CODES.CATEGORY_SPACE: " ", CODES.CATEGORY_WORD: "a"}
    return str(categories.get(low, "a"))


def searches(compiled: "re.Pattern[Any]", text: Any) -> None:
    """Find all places at which an expression matches a text."""
    for _ in compiled.finditer(text):
        pass
