"""For any task line, `parse` and the published JSON Schema agree; no doubled name passes."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.schemas.task.line.parsing import LineError, parse
from tests.unit.schemas.task.line.test_parsing import OURS, ours, taken, validator

OUR_SCHEMA = validator("task_line.json")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet='a:"\\ \u20ac', max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet='b:"\\', max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    metadata=st.dictionaries(st.text(alphabet="a:b", max_size=3), JSON, max_size=4),
    ascii_only=st.booleans(),
)
def test_no_clear_line_is_taken_for_one_with_doubled_names(
    metadata: dict[str, Any], *, ascii_only: bool
) -> None:
    """A line with unique names is accepted, whatever colons, quotes and escapes it has."""
    value = json.dumps(ours(metadata=metadata), ensure_ascii=ascii_only).encode()

    assert parse(value).metadata == metadata


@given(
    inner=st.dictionaries(st.text(alphabet="a:b", max_size=3), JSON, min_size=1, max_size=4),
    other=JSON,
)
def test_a_doubled_name_is_always_seen(inner: dict[str, Any], other: Any) -> None:
    """A doubled pair is refused, whatever colons the dropped and the kept value have."""
    name = next(iter(inner))
    doubled = json.dumps(inner)[:-1] + f", {json.dumps(name)}: {json.dumps(other)}}}"
    value = json.dumps(ours(metadata={"x": ["PLACE"]})).replace('"PLACE"', doubled).encode()

    with pytest.raises(LineError, match="twice"):
        parse(value)


FIELDS = "type prompt input model params tenant priority deadline max_attempts metadata".split()
VALUES = JSON | st.sampled_from(
    [
        "{document}",
        "a b",
        "2027-01-31T18:00:00Z",
        {"text": "a"},
        {"uri": "file:///a"},
        {"model": "m"},
        1,
        9.0,
        1e9,
        "x" * 200,
    ]
)


@given(fields=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3))
def test_parse_and_the_published_schema_never_disagree(fields: dict[str, Any]) -> None:
    """Whatever the fields hold, both accept the line or both refuse it."""
    line = OURS | fields

    assert OUR_SCHEMA.is_valid(line) == taken(orjson.dumps(line))


@given(value=st.binary(max_size=60))
def test_arbitrary_bytes_never_crash_the_reader(value: bytes) -> None:
    """Foreign bytes become a task or a LineError, and nothing else."""
    with pytest.raises(LineError):
        parse(value)
