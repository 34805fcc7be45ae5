r"""Estimate how long a JSON Schema holds the interpreter's lock, compiled or judged by.

The library never releases the lock, so the heartbeat stands still meanwhile. Figures are
microseconds on a slow machine, rather too high than too low: what looks expensive is only done in
another process.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from schemas.answer_schema import trials
from schemas.line_json import values_in
from schemas.patterns import backtracks, compiled_kb, patterns_in
from schemas.remembered import Remembered

LIGHT_US = 25_000
LIGHT_VALUES = 5_000
_COMPILE_VALUE_US = 5.0  # for each JSON value of a schema
_COMPILE_KB_US = 5.0  # for each KB of its compiled patterns
_TRIAL_US = 0.2  # to try one part of an answer on one value of the schema
_CHAR_US = 0.015  # to look for a pattern at one character
_KB_CHAR_US = 0.0001  # and more for each KB of it
_BACKTRACK_US = 0.001  # a pattern that looks around may read all of a text again at each character of it
_COMPILE_CHAR_US = 250.0  # for each character of an answer that may be a pattern itself
_COST_BYTES = 1_000
_SEPARATORS = (b",", b"[", b"{", b"\\u")  # before each value but the first; JSON in a text may escape its separators


@dataclass(frozen=True, slots=True)
class Cost:
    """What a schema costs. `trials`: with how much of it one part of an answer is compared."""

    compile_us: float
    trials: int
    patterns_kb: float
    has_patterns: bool
    looks_around: bool
    reads_patterns: bool

    def judging_us(self, reply: bytes) -> float:
        """Return what it costs at most to judge an answer that is somewhere in a reply."""
        cost_us = _TRIAL_US * self.trials * (1 + sum(map(reply.count, _SEPARATORS)))
        if self.has_patterns:
            cost_us += len(reply) * self.trials * (_CHAR_US + _KB_CHAR_US * self.patterns_kb)
        if self.looks_around:
            cost_us += _BACKTRACK_US * self.trials * len(reply) ** 2
        if self.reads_patterns:
            cost_us += _COMPILE_CHAR_US * len(reply)
        return cost_us


_KNOWN: Remembered[Cost] = Remembered(4 << 20)


def is_heavy(schema: dict[str, Any]) -> bool:
    """Return whether it takes long to check and compile a schema."""
    cost = _cost(schema)
    return cost is None or cost.compile_us > LIGHT_US


def is_heavy_for(schema: dict[str, Any], reply: bytes) -> bool:
    """Return whether it takes long to compile a schema, or to judge the answer in a reply by it."""
    cost = _cost(schema)
    return cost is None or cost.compile_us > LIGHT_US or cost.judging_us(reply) > LIGHT_US


def is_heavy_line(value: bytes) -> bool:
    """Return whether it takes long to read a task line; one that is no JSON is soon refused."""
    if sum(map(value.count, _SEPARATORS[:3])) > LIGHT_US:
        return True  # a JSON value, or a comma of a text, takes about a microsecond
    if b'"schema"' not in value and b"\\u" not in value:
        return False
    try:
        line = orjson.loads(value)
    except orjson.JSONDecodeError:
        return False
    schema = line.get("schema") if isinstance(line, dict) else None
    return isinstance(schema, dict) and is_heavy(schema)


def _cost(schema: dict[str, Any]) -> Cost | None:
    """Return the cost of a schema, None where it has so many values that it is not even counted."""
    if values_in(schema, LIGHT_VALUES) > LIGHT_VALUES:
        return None
    try:
        packed = orjson.dumps(schema)
    except orjson.JSONEncodeError:  # of a handler's own making
        return None
    return _KNOWN.get(packed, lambda: (_counted(schema), _COST_BYTES))


def _counted(schema: dict[str, Any]) -> Cost:
    patterns = patterns_in(schema)
    values, patterns_kb = values_in(schema, LIGHT_VALUES), sum(map(compiled_kb, patterns))
    return Cost(
        compile_us=_COMPILE_VALUE_US * values + _COMPILE_KB_US * patterns_kb,
        trials=max(values, trials(schema)),
        patterns_kb=patterns_kb,
        has_patterns=bool(patterns),
        looks_around=any(map(backtracks, patterns)),
        reads_patterns=b'"regex"' in orjson.dumps(schema),
    )
