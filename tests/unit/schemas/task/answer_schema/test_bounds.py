"""Limits on the work that an answer's schema may cause."""

from typing import Any

import jsonschema_rs
import pytest

from docllm.schemas.task.answer_schema.bounds import MAX_TRIALS, id_problem, too_much

LEVELS = 30


def doubling(keyword: str, reference: str = "#/$defs/{}", **each: str) -> dict[str, Any]:
    """Return a schema of 30 levels, each of which tries the next one twice."""
    levels = {
        f"a{n}": _twice(keyword, {"$ref": reference.format(f"a{n + 1}")}) for n in range(LEVELS)
    } | {f"a{LEVELS}": {}}
    for name, level in levels.items():
        level.update({key: value.format(name) for key, value in each.items()})
    return {"$ref": reference.format("a0"), "$defs": levels}


def _twice(keyword: str, subschema: dict[str, Any]) -> dict[str, Any]:
    match keyword:
        case "anyOf" | "allOf" | "oneOf":
            return {keyword: [subschema, subschema]}
        case "properties":
            return {"properties": {"a": {"anyOf": [subschema, subschema]}}}
        case "patternProperties":
            return {"patternProperties": {"a": subschema, "b": subschema}}
        case "dependentSchemas":
            return {keyword: {"b": subschema, "c": subschema}}
        case _:
            return {keyword: subschema, "not": subschema}


def unevaluated(
    levels: int, keyword: str = "unevaluatedProperties", among: str = "allOf"
) -> dict[str, Any]:
    """Return a schema of so many levels, each of which accepts the inner one's properties."""
    return (
        {keyword: False, among: [unevaluated(levels - 1, keyword, among)]}
        if levels
        else {"required": ["a"]}
    )


TOO_MUCH = {
    "what is unevaluated, level by level": unevaluated(LEVELS),
    "unevaluated items": unevaluated(LEVELS, "unevaluatedItems", "anyOf"),
    **{
        keyword: doubling(keyword)
        for keyword in (
            "anyOf",
            "allOf",
            "oneOf",
            "if",
            "dependentSchemas",
            "properties",
            "patternProperties",
        )
    },
    "by anchors": doubling("anyOf", "#{}", **{"$anchor": "{}"}),
    "by ids": doubling("anyOf", "{}.json", **{"$id": "{}.json"}),
    "by escapes": doubling("anyOf", "#/%24defs/{}"),
    "anchors of one name": {
        "$defs": {str(n): {"$anchor": "a"} for n in range(1100)},
        "properties": {str(n): {"$ref": "#a"} for n in range(1100)},
    },
    "a long chain": {
        "$ref": "#/$defs/0",
        "$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(5000)} | {"5000": {}},
    },
    "many alternatives of many": {
        "allOf": [{"$ref": "#/$defs/many"}] * 400,
        "$defs": {"many": {"anyOf": [{"const": n} for n in range(400)]}},
    },
    "many alternatives of names": {
        "anyOf": [{"propertyNames": {"$ref": "#/$defs/many"}}] * 400,
        "$defs": {"many": {"anyOf": [{"const": n} for n in range(400)]}},
    },
}
FINE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a tree": {
        "$ref": "#/$defs/n",
        "$defs": {"n": {"properties": {"l": {"$ref": "#/$defs/n"}, "r": {"$ref": "#/$defs/n"}}}},
    },
    "a thousand alternatives": {"oneOf": [{"const": n} for n in range(1000)]},
    "a thousand parts": {
        "properties": {
            str(n): {"anyOf": [{"type": "string"}, {"type": "null"}]} for n in range(1000)
        }
    },
    "alternatives that hold others of their kind": {
        "properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}},
        "required": ["a"],
    },
    "itself": {"$ref": "#"},
    "a few levels of what is unevaluated": unevaluated(8),
    "itself among others": {"anyOf": [{"$ref": "#"}, {"type": "integer"}]},
    "what only looks like a reference": {
        "enum": [{"$ref": "#/nowhere"}],
        "properties": {"$ref": {"type": "string"}},
    },
    "a few levels": {
        "$ref": "#/$defs/0",
        "$defs": {str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(8)}
        | {"8": {}},
    },
    "many references into a long list": {
        "anyOf": [{} for _ in range(9000)],
        "properties": {str(n): {"$ref": "#/anyOf/0"} for n in range(20_000)},
    },
    "an item of a list": {"anyOf": [{"type": "string"}, {"$ref": "#/anyOf/0"}]},
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_alternatives_of_alternatives_are_counted_as_often_as_they_are_tried(name: str) -> None:
    """Alternatives are counted as often as they are tried, however they refer to one another."""
    assert too_much(TOO_MUCH[name])


@pytest.mark.parametrize("name", FINE)
def test_ordinary_schemas_need_few_trials(name: str) -> None:
    """Schemas that people write have few trials, and the validator takes them."""
    jsonschema_rs.validator_for(FINE[name], offline=True)

    assert not too_much(FINE[name])


def test_the_worst_accepted_schema_is_tried_quickly() -> None:
    """The worst accepted schema is as fast as many a plain one: each subschema is tried once."""
    levels = MAX_TRIALS.bit_length() - 3
    schema = {
        "$ref": "#/$defs/0",
        "$defs": {str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(levels)},
    }
    schema["$defs"][str(levels)] = {"type": "string"}  # type: ignore[index]

    assert not too_much(schema)
    assert not jsonschema_rs.validator_for(schema, offline=True).is_valid(7)


def test_an_id_is_short_with_those_around_it() -> None:
    """Two subschemas share no `$id`, and none is joined to one of a megabyte, again and again."""
    inner = {"$id": "b", "$defs": {"c": {"$id": "c"}}}

    assert id_problem({"$id": "https://a.example/a", "$defs": {"b": inner}}) is None
    assert id_problem({"$id": "c", "$defs": {"b": inner}}) == "has the $id c twice"
    long = {"$id": f"https://a.example/{'a/' * 500}", "$defs": {"b": inner}}
    assert id_problem(long) == "has an $id of more than 1000 characters"
