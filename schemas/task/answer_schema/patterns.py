r"""The regular expressions of a JSON Schema, and their cost to compile and to match.

Patterns are the most expensive part of a schema: `\pL{200}` alone compiles to 10 MB, and the
library reads a pattern once more for each class in it.
"""

import re
from collections.abc import Iterator
from typing import Any

MAX_PATTERNS = 100
MAX_PATTERN_CHARS = 20_000
_MAX_PATTERN_WORK = 40_000

_PIECE = re.compile(r"[(|]")
_IN_PIECES = re.compile(r"\(\?[=!<>(]|\\[1-9kgGKzZA]|[*+?}]\+")
_CLASS = re.compile(r"\\[0-9A-Za-z]")
_ANY_CASE = re.compile(r"\(\?[A-Za-hj-z-]*+i")
# In a class that ignores case, each of a million characters may be looked up.
_WIDE = re.compile(r"\\[0-9A-Za-z]|[^\x00-\x7f]")
_WIDE_WORK = 2_000

# A class that does not end is one token too, so that nothing is read twice.
_TOKEN = re.compile(
    r"\\[pP](?:\{[^}]*+\}?+|.)?|\\.|\[(?>(?:\\.|[^\]\\])*)\]?+|\{(\d*+),?(\d*+)\}|[()]|.", re.DOTALL
)
_MAX_REPEATED = 10_000
_MAX_KB = 1_000_000.0
# What one character of a pattern compiles to: a Unicode class, a wide class, any other.
_UNICODE_KB = 50.0
_WIDE_KB = 1.0
_NARROW_KB = 0.1
_NEGATED = (".", "[^", "\\S", "\\D", "\\W")


def objects_in(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every JSON object inside a value, including the value itself."""
    unvisited: list[Any] = [schema]
    while unvisited:
        node = unvisited.pop()
        if isinstance(node, dict):
            yield node
            unvisited.extend(node.values())
        elif isinstance(node, list):
            unvisited.extend(node)


def patterns_in(schema: dict[str, Any]) -> set[str]:
    """Return the patterns of a schema."""
    patterns: set[str] = set()
    for node in objects_in(schema):
        if isinstance(pattern := node.get("pattern"), str):
            patterns.add(pattern)
        if isinstance(by_pattern := node.get("patternProperties"), dict):
            patterns.update(by_pattern)
    return patterns


def excess_of_patterns(schema: dict[str, Any]) -> str | None:
    """Return why a schema's patterns are too much to compile, in words, or None."""
    patterns = patterns_in(schema)
    if len(patterns) > MAX_PATTERNS:
        return f"has more than {MAX_PATTERNS} different patterns"
    if sum(map(len, patterns)) > MAX_PATTERN_CHARS:
        return f"has patterns of more than {MAX_PATTERN_CHARS} characters"
    if sum(map(_work, patterns)) > _MAX_PATTERN_WORK:
        return "has patterns with too many classes"
    return None


def _work(pattern: str) -> int:
    """Return the work to read a pattern, which grows with the square of its classes."""
    wide = len(_WIDE.findall(pattern)) if _ANY_CASE.search(pattern) else 0
    return len(_CLASS.findall(pattern)) ** 2 + wide * _WIDE_WORK


def pieces(pattern: str) -> int:
    """Return how many pieces of a pattern the library compiles separately."""
    return 1 + (len(_PIECE.findall(pattern)) if backtracks(pattern) else 0)


def backtracks(pattern: str) -> bool:
    """Return whether a pattern has look-arounds or backreferences, and no linear running time."""
    return _IN_PIECES.search(pattern) is not None


def compiled_kb(pattern: str) -> float:
    r"""Return the approximate size of a compiled pattern in KB.

    Counted repetitions are written out: `(\pL{10}x){3}` has 30 classes.
    """
    outer_kb: list[float] = []
    total_kb = last_kb = 0.0
    for token in _TOKEN.finditer(pattern):
        text = token[0]
        if token[1] is not None:  # {n}, {n,} or {n,m} repeats the atom or group before it
            repeated_kb = last_kb * (max(_count(token[1]), _count(token[2]), 1) - 1)
            total_kb, last_kb = (
                min(total_kb + repeated_kb, _MAX_KB),
                min(last_kb + repeated_kb, _MAX_KB),
            )
        elif text == "(":
            outer_kb.append(total_kb)
            total_kb = last_kb = 0.0
        elif text == ")":
            last_kb, total_kb = total_kb, (outer_kb.pop() if outer_kb else 0.0) + total_kb
        else:
            last_kb = _atom_kb(text)
            total_kb += last_kb
    return min(total_kb + sum(outer_kb), _MAX_KB)


def _atom_kb(text: str) -> float:
    if r"\p" in text.lower():
        return _UNICODE_KB
    return _WIDE_KB if text.startswith(_NEGATED) or not text.isascii() else _NARROW_KB


def _count(digits: str) -> int:
    return min(int(digits[:6] or "0"), _MAX_REPEATED)
