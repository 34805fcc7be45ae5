"""Which column of a table holds which field of a task: `load --map`. It imports no library."""

import re
from collections.abc import Mapping

from docllm.schemas.text.wording import did_you_mean

FIELDS = (
    "id", "type", "prompt", "text", "uri", "model", "route", "tenant", "priority", "not_before",
    "deadline", "max_attempts", "time_limit_s",
)  # fmt: skip
OBJECTS = ("params", "metadata")  # each of their names has a column, as in metadata.year

_NEXT = re.compile(r",\s*+(?=[A-Za-z_]++(?:\.[^=,]*+)?=)")
_NAMED = re.compile(r"(?:params|metadata)\.[^=,]++")


def is_field(name: str) -> bool:
    """Return whether a column may hold a field of this name."""
    return name in FIELDS or _NAMED.fullmatch(name) is not None


def column_map(text: str) -> dict[str, str]:
    """Return the columns of the fields in a text such as `id=number,text=body`.

    The name of a column may hold commas. Raises ValueError.
    """
    columns: dict[str, str] = {}
    for part in _NEXT.split(text.strip()):
        field, equals, column = part.partition("=")
        field = field.strip()
        if not equals or not column:
            raise ValueError(f"{part!r} is not FIELD=COLUMN, as in id=number")
        if not is_field(field):
            known = f"known are: {', '.join(FIELDS)}, {', '.join(f'{name}.X' for name in OBJECTS)}"
            fix = did_you_mean(field, FIELDS, known)
            raise ValueError(f"{field[:100]!r} is no field that a column may hold; {fix}")
        if field in columns:
            raise ValueError(f"{field} has two columns; leave one of them out")
        columns[field] = column
    return columns


def by_names(names: Mapping[str, int]) -> dict[str, str]:
    """Return the columns that are named as a field is."""
    return {name: name for name in names if is_field(name)}
