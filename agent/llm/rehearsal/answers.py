"""The rehearsal LLM's answers: an extractive summary, or a small value that fits a schema.

Pure: the same input gives the same answer.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_SCAN_CHARS = 600
_LONG_WORD = 5
_FREQUENT = 3
_SENTENCES = 2
_SENTENCE_CHARS = 240
_MAX_DEPTH = 16
_MAX_VALUES = 10_000
_MAX_CHARS = 1_000_000
_CHARS_PER_TOKEN = 4

_INSTRUCTION = re.compile(r"\A[^\n:]{1,80}:\s")


def prompt_of(messages: list[Any]) -> str:
    """Return the text of the last message, whose content is a text or a list of parts."""
    content = messages[-1].get("content") if isinstance(messages[-1], dict) else None
    if isinstance(content, list):
        return "\n".join(
            str(part["text"]) for part in content if isinstance(part, dict) and "text" in part
        )
    return content if isinstance(content, str) else ""


def summary(text: str) -> str:
    """Return the sentences with the most frequent long words, in the document's order.

    An instruction before a colon is left out. Only the beginning is read, so that the benchmark's
    server uses almost no CPU.
    """
    scanned = _INSTRUCTION.sub("", text[:_SCAN_CHARS])
    sentences = [
        sentence.strip()
        for sentence in scanned.replace(". ", ".\n").split("\n")
        if sentence.strip()
    ]
    frequent = Counter(word for word in scanned.split() if len(word) >= _LONG_WORD).most_common(
        _FREQUENT
    )
    weights = [sum(word in sentence for word, _ in frequent) for sentence in sentences]
    ranked = sorted(range(len(sentences)), key=weights.__getitem__, reverse=True)
    return (
        " ".join(sentences[place][:_SENTENCE_CHARS] for place in sorted(ranked[:_SENTENCES]))
        or "The document is empty."
    )


def tokens(text: str) -> int:
    """Return the usual estimate of a text's tokens."""
    return max(1, len(text) // _CHARS_PER_TOKEN)


def example(schema: Any, text: str) -> Any:
    """Return a small value that fits the JSON Schema.

    It observes types, required names, choices and sizes. Raises ValueError for an invalid schema,
    and for a schema that asks for more than a small value.
    """
    try:
        return _example(schema, _Asked(schema, text, iter(range(_MAX_VALUES))), 0)
    except (ArithmeticError, AttributeError, LookupError, TypeError):
        raise ValueError("the schema is not valid") from None


@dataclass(frozen=True, slots=True)
class _Asked:
    """The state of one example: the schema, the text for strings, and the budget of values."""

    root: Any
    text: str
    left: Iterator[int]


def _example(schema: Any, asked: _Asked, depth: int) -> Any:
    if next(asked.left, None) is None:
        raise ValueError(f"the schema asks for more than {_MAX_VALUES} values")
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    if "$ref" in schema:
        return _example(_resolve(schema["$ref"], asked.root), asked, depth + 1)
    for choice in ("anyOf", "oneOf", "allOf"):
        if schema.get(choice):
            return _example(schema[choice][0], asked, depth + 1)
    return _of_type(_type(schema), schema, asked, depth)


def _type(schema: dict[str, Any]) -> str:
    type_name = schema.get("type", "object" if "properties" in schema else "string")
    return str(type_name[0]) if isinstance(type_name, list) else str(type_name)


def _of_type(name: str, schema: dict[str, Any], asked: _Asked, depth: int) -> Any:
    match name:
        case "object":
            properties = schema.get("properties", {})
            required = schema.get("required", list(properties))
            return {key: _example(properties.get(key, {}), asked, depth + 1) for key in required}
        case "array":
            return [
                _example(schema.get("items", {}), asked, depth + 1)
                for _ in range(int(schema.get("minItems", 0)))
            ]
        case "string":
            return _string(
                asked.text[: int(schema.get("maxLength", _SENTENCE_CHARS))],
                int(schema.get("minLength", 0)),
            )
        case "integer" | "number":
            return schema.get("minimum", min(0, schema.get("maximum", 0)))
        case "boolean":
            return True
    return None


def _string(text: str, least_chars: int) -> str:
    if least_chars > _MAX_CHARS:
        raise ValueError(f"the schema asks for more than {_MAX_CHARS} characters")
    return text.ljust(least_chars, ".")


def _resolve(reference: str, root: Any) -> Any:
    target = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        if step and isinstance(target, dict):
            target = target.get(step.replace("~1", "/").replace("~0", "~"))
    return target
