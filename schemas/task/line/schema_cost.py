r"""Estimates how long a JSON Schema blocks the interpreter, to compile or to judge by it.

The library never releases the interpreter's lock, so heartbeats stand still meanwhile. The figures
are microseconds on a slow machine. They are rather too high, because work that looks expensive is
only moved to another process.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from docllm.schemas.runtime.digest_cache import DigestCache
from docllm.schemas.task.answer_schema.bounds import trials
from docllm.schemas.task.answer_schema.patterns import backtracks, compiled_kb, patterns_in
from docllm.schemas.task.line.strict_json import values_in

LIGHT_US = 25_000
LIGHT_VALUES = 5_000
_COMPILE_VALUE_US = 5.0  # for each JSON value of a schema
_COMPILE_KB_US = 5.0  # for each KB of its compiled patterns
_TRIAL_US = 0.2  # to compare one part of an answer with one value of the schema
_CHAR_US = 0.015  # to search for a pattern at one character
_KB_CHAR_US = 0.0001  # extra, for each KB of the pattern
_BACKTRACK_US = 0.001  # a pattern with look-around may read the whole text again at each character
_COMPILE_CHAR_US = 250.0  # for each character of an answer that may itself be a pattern
_COST_BYTES = 1_000
# One of these stands before each value except the first; JSON within a text may escape them.
_SEPARATORS = (b",", b"[", b"{", b"\\u")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a schema.

    `trials` is how many values of the schema one part of an answer may be compared with.
    """

    compile_us: float
    trials: int
    patterns_kb: float
    has_patterns: bool
    looks_around: bool
    reads_patterns: bool

    def judging_us(self, reply: bytes) -> float:
        """Return the highest cost of judging an answer that is somewhere in a reply."""
        cost_us = _TRIAL_US * self.trials * (1 + sum(map(reply.count, _SEPARATORS)))
        if self.has_patterns:
            cost_us += len(reply) * self.trials * (_CHAR_US + _KB_CHAR_US * self.patterns_kb)
        if self.looks_around:
            cost_us += _BACKTRACK_US * self.trials * len(reply) ** 2
        if self.reads_patterns:
            cost_us += _COMPILE_CHAR_US * len(reply)
        return cost_us


_KNOWN: DigestCache[Cost] = DigestCache(4 << 20)


def is_heavy(schema: dict[str, Any]) -> bool:
    """Return whether a schema takes long to check and compile."""
    cost = _cost(schema)
    return cost is None or cost.compile_us > LIGHT_US


def is_heavy_for(schema: dict[str, Any], reply: bytes) -> bool:
    """Return whether a schema takes long to compile, or to judge the answer in a reply."""
    cost = _cost(schema)
    return cost is None or cost.compile_us > LIGHT_US or cost.judging_us(reply) > LIGHT_US


def is_heavy_line(value: bytes) -> bool:
    """Return whether a task line takes long to read; a line that is not JSON is refused quickly."""
    if sum(map(value.count, _SEPARATORS[:3])) > LIGHT_US:
        return True  # a JSON value, or a comma in a text, takes about a microsecond
    if b'"schema"' not in value and b"\\u" not in value:
        return False
    try:
        line = orjson.loads(value)
    except orjson.JSONDecodeError:
        return False
    schema = line.get("schema") if isinstance(line, dict) else None
    return isinstance(schema, dict) and is_heavy(schema)


def _cost(schema: dict[str, Any]) -> Cost | None:
    """Return the cost of a schema, None if it has too many values to be counted."""
    if values_in(schema, LIGHT_VALUES) > LIGHT_VALUES:
        return None
    try:
        packed = orjson.dumps(schema)
    except orjson.JSONEncodeError:  # a handler made it
        return None
    return _KNOWN.get(packed, lambda: (_computed(schema), _COST_BYTES))


def _computed(schema: dict[str, Any]) -> Cost:
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
