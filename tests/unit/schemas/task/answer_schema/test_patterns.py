"""Limits on the cost of a schema's patterns."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.schemas.task.answer_schema.bounds import too_much
from docllm.schemas.task.answer_schema.patterns import (
    MAX_PATTERN_CHARS,
    MAX_PATTERNS,
    compiled_kb,
    excess_of_patterns,
)
from docllm.schemas.task.answer_schema.validator import validator_of

WIDE = r"\pL{200}"


def fields(patterns: list[str]) -> dict[str, Any]:
    return {
        "properties": {
            f"p{number}": {"pattern": pattern} for number, pattern in enumerate(patterns)
        }
    }


def test_many_ordinary_patterns_are_taken() -> None:
    """A hundred date fields are accepted, with one pattern for all or one for each."""
    validator_of(fields([rf"^{number}-\d{{4}}-\d{{2}}-\d{{2}}$" for number in range(MAX_PATTERNS)]))
    validator_of(fields([r"^\d{4}-\d{2}-\d{2}$"] * 1000))


@pytest.mark.parametrize("keyword", ["pattern", "patternProperties"])
def test_too_many_patterns_are_refused(keyword: str) -> None:
    """Too many patterns are refused wherever they stand.

    A subschema that nothing refers to may be referred to by another reader of the schema.
    """
    patterns = [f"{WIDE}{number}" for number in range(MAX_PATTERNS + 1)]
    schema = (
        {"x-mine": [fields(patterns)]}
        if keyword == "pattern"
        else {keyword: dict.fromkeys(patterns, True)}
    )

    assert excess_of_patterns(schema) is not None
    with pytest.raises(ValueError, match="more than 100 different patterns"):
        validator_of(schema)


HEAVY = {
    "large by its count": [r"\pL{2000}"],
    "large together": [f"{WIDE}{number}" for number in range(20)],
    "large by pieces": ["".join(rf"(?=\pL{{9}}{number})" for number in range(500))],
    "large by alternatives": ["(?=x)" + r"|\pL{9}" * 150],
    "long": ["a" * (MAX_PATTERN_CHARS + 1)],
    "many classes": [r"\s" * 1000],
    "wide ranges in any case": ["(?i)" + "[\u00a1-\U0010ffff]" * 100],
}


@pytest.mark.parametrize("name", HEAVY)
def test_a_pattern_that_takes_much_to_compile_is_refused(name: str) -> None:
    """A pattern that takes much to compile is refused.

    A few kB of a record used to take seconds and gigabytes, without a heartbeat.
    """
    with pytest.raises(ValueError, match=r"pattern|regex"):
        validator_of(fields(HEAVY[name]))


@pytest.mark.parametrize(
    "value",
    [
        {
            "pattern": 7,
            "patternProperties": ["a"],
            "$ref": 7,
            "$id": [1],
            "$anchor": {},
            "anyOf": {},
            "properties": [{}],
            "items": 3,
        },
        {
            "$id": 7,
            "$defs": {"a": {"$id": None, "$ref": "b#/%ff/~2"}},
            "allOf": [1, None, [{}]],
            "dependentSchemas": "x",
        },
    ],
)
def test_any_json_value_can_be_weighed(value: dict[str, Any]) -> None:
    """Any JSON value can be estimated, because the cost is checked before anything is compiled."""
    assert excess_of_patterns(value) is None
    assert not too_much(value)
    with pytest.raises(ValueError, match=r"."):
        validator_of(value)


UNICODE_KB = 50


@pytest.mark.parametrize(
    ("pattern", "classes"),
    [
        (r"\pL{300}", 300),
        (r"\p{L}{0,300}", 300),
        (r"\PL{7,}", 7),
        (r"[\p{L}\d]{20}", 20),
        (r"(\pL{10}x){3}", 30),
        (r"(?:(\pL|\pN){2}){3}\pL", 13),
        (r"\\pL{3}", 0),
        (r"(((\pL{9999}){9999}){9999})", 20_000),
        (r"((\pL", 1),
        (r"\pL))){5}", 5),
    ],
)
def test_a_pattern_weighs_what_it_repeats(pattern: str, classes: int) -> None:
    """A pattern's counted repetitions are written out; invalid patterns are estimated too."""
    assert compiled_kb(pattern) == pytest.approx(classes * UNICODE_KB, abs=2)


@given(pattern=st.text(alphabet="\\pPL{}[](),19a^.*", max_size=40))
def test_any_pattern_can_be_weighed(pattern: str) -> None:
    """Any pattern can be estimated, whatever its brackets."""
    assert compiled_kb(pattern) >= 0
