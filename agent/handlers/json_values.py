"""Writes what a handler gives as JSON, which holds no NaN and no infinity.

orjson writes such a number as null, so the value would be lost without an error.
"""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from typing import Any

import orjson


def json_bytes(value: Any, name: str) -> bytes:
    """Return a value as JSON; `name` is what messages call it.

    Raises TypeError for what JSON cannot hold, and ValueError for a number that is not finite.
    """
    written = orjson.dumps(value)
    if b"null" in written:  # most values have none, and need no walk
        require_finite(value, name)
    return written


def as_json(result: Any) -> bytes:
    """Return a handler's result as JSON.

    Raises TypeError that says what a handler may return, and ValueError for a number that is not
    finite.
    """
    try:
        return json_bytes(result, "result")
    except TypeError as error:
        raise TypeError(
            f"the handler returned what JSON cannot hold ({error}); return an answer by itself, or "
            "dicts with text keys, lists, texts and numbers; in them, an answer is answer.text"
        ) from None


def require_finite(value: Any, name: str) -> None:
    """Raise ValueError that names the first number in a value that is not finite."""
    if (found := _not_finite(value)) is not None:
        place, number = found
        raise ValueError(
            f"{name}{place} is {number}, which JSON cannot hold; use None or another value"
        )


def _not_finite(value: Any) -> tuple[str, float] | None:
    """Return the place and the value of the first number that is not finite."""
    if isinstance(value, float):
        return None if isfinite(value) else ("", value)
    for key, item in _items(value):
        if (found := _not_finite(item)) is not None:
            return f"[{key!r}]{found[0]}", found[1]
    return None


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return what orjson would write of a value, with its keys; nothing if it is no container."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple):
        return enumerate(value)
    if isinstance(value, Enum):
        return (("value", value.value),)
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if not field.name.startswith("_")]
        return ((name, getattr(value, name)) for name in names if hasattr(value, name))
    return ()
