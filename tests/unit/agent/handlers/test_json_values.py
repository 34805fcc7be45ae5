"""What a handler gives is stored as it was, or refused: no number becomes null silently."""

from dataclasses import dataclass, field
from enum import Enum
from math import inf, nan
from typing import Any

import orjson
import pytest

from docllm.agent.handlers.json_values import json_bytes, require_finite


@dataclass
class Page:
    """A value that orjson writes as an object."""

    score: float
    number: int = field(init=False)  # not set, so not written
    _own: float = nan  # never written


class Level(Enum):
    """A value that orjson writes as its own value."""

    UNKNOWN = nan


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (nan, "result is nan,"),
        (-inf, "result is -inf,"),
        ({"pages": [{"score": 1.5}, {"score": nan}]}, "result['pages'][1]['score'] is nan,"),
        ([None, (1, inf)], "result[1][1] is inf,"),
        ([Page(nan)], "result[0]['score'] is nan,"),
        ({"level": Level.UNKNOWN}, "result['level']['value'] is nan,"),
    ],
)
def test_a_number_that_is_not_finite_is_refused_with_its_place(value: Any, text: str) -> None:
    """JSON has no such number, and the library writes null."""
    assert b"null" in orjson.dumps(value)

    with pytest.raises(ValueError, match="which JSON cannot hold") as raised:
        json_bytes(value, "result")

    assert str(raised.value).startswith(text)
    with pytest.raises(ValueError, match="which JSON cannot hold"):
        require_finite(value, "result")


@pytest.mark.parametrize(
    "value", [None, "null", {"score": None, "of": [0.0, 1e308, True]}, [Page(0.5), None], {}]
)
def test_other_values_are_written_as_they_are(value: Any) -> None:
    """A null of the handler's own, also inside a text, is no lost number."""
    assert json_bytes(value, "result") == orjson.dumps(value)
