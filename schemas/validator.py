r"""The validator of an answer's JSON Schema, made at a bounded price.

Its patterns are what costs: `\pL{200}` alone is 10 MB, and the library reads a pattern once more for each class in it. It holds the
interpreter's lock meanwhile, which the heartbeat needs.
"""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs

MOST_PATTERNS = 100
MOST_PATTERN_CHARS = 20_000
_MOST_PATTERN_WORK = 40_000
# All patterns of a schema together; of one that has look-arounds or references back each piece is compiled by itself.
_COMPILED_BYTES = 16 << 20
_MOST_STEPS_BACK = 10_000

_PIECE = re.compile(r"[(|]")
_IN_PIECES = re.compile(r"\(\?[=!<>(]|\\[1-9kgGKzZA]|[*+?}]\+")
_CLASS = re.compile(r"\\[0-9A-Za-z]")
_ANY_CASE = re.compile(r"\(\?[A-Za-z-]*i")
# Of a class without case each of a million characters may be looked up.
_WIDE = re.compile(r"\\[0-9A-Za-z]|[^\x00-\x7f]")
_WIDE_WORK = 2_000


def objects_in(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every JSON object in a value, itself included."""
    waiting: list[Any] = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def excess_of_patterns(schema: dict[str, Any]) -> str | None:
    """Return what of a schema's patterns is too much to be compiled, in words; None where they are soon compiled."""
    patterns = _patterns(schema)
    if len(patterns) > MOST_PATTERNS:
        return f"has more than {MOST_PATTERNS} different patterns"
    if sum(map(len, patterns)) > MOST_PATTERN_CHARS:
        return f"has patterns of more than {MOST_PATTERN_CHARS} characters"
    if sum(map(_work, patterns)) > _MOST_PATTERN_WORK:
        return "has patterns with too many classes"
    return None


def validator_of(schema: dict[str, Any], *, mask: str | None = None) -> jsonschema_rs.Validator:
    """Return the validator of a schema; `mask` stands for the value in its errors. Nothing is fetched.

    Raises ValueError for what is no JSON Schema, refers to other documents, or has patterns that take too much to compile.
    """
    if (excess := excess_of_patterns(schema)) is not None:
        raise ValueError(excess)
    pieces = max(1, sum(map(_pieces, _patterns(schema))))
    limits = jsonschema_rs.FancyRegexOptions(size_limit=_COMPILED_BYTES // pieces, backtrack_limit=_MOST_STEPS_BACK)
    try:
        return jsonschema_rs.validator_for(schema, mask=mask, offline=True, pattern_options=limits)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as wrong:
        raise ValueError(_first_line(str(wrong))) from None


def first_error(validator: jsonschema_rs.Validator, value: Any) -> jsonschema_rs.ValidationError | None:
    """Return the first error of a value. A list of all would hold a copy of what is at fault for each.

    Raises ValueError for a value that is nested too deep.
    """
    try:
        validator.validate(value)
    except jsonschema_rs.ValidationError as error:
        return error
    return None


def _first_line(text: str) -> str:
    line = " ".join(text.splitlines()[:1])
    return f"{line[-180:]} that takes at most {_COMPILED_BYTES >> 20} MiB with the others" if line.endswith('is not a "regex"') else line


def _patterns(schema: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    for node in objects_in(schema):
        if isinstance(pattern := node.get("pattern"), str):
            found.add(pattern)
        if isinstance(named := node.get("patternProperties"), dict):
            found.update(named)
    return found


def _work(pattern: str) -> int:
    """Return how much work it is to read a pattern, which grows with the square of its classes."""
    wide = len(_WIDE.findall(pattern)) if _ANY_CASE.search(pattern) else 0
    return len(_CLASS.findall(pattern)) ** 2 + wide * _WIDE_WORK


def _pieces(pattern: str) -> int:
    return 1 + (len(_PIECE.findall(pattern)) if _IN_PIECES.search(pattern) else 0)
