"""Shows dead letters as JSON for scripts, and as lines for a person.

No query, no decision. Text from foreign records is shown without anything that a terminal would act
on.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.text import Text

from docllm.producer.ledger.dead_letters.error_groups import ErrorGroup
from docllm.producer.ledger.tally import OTHER_FINGERPRINTS
from docllm.producer.text.columns import Column, fitted
from docllm.producer.text.printable import shown
from docllm.schemas.text.wording import cost_units, money, number_of, units

# Characters shown of each.
FINGERPRINT_SHOWN = 8
ERROR_SHOWN = 500
OTHER_ERRORS = "other errors"
MIN_CLASS = 12  # the narrowest column in which error classes can be told apart
_LEAVING = ("first", "last", "disposition", "cost", "fingerprint")


def groups_json(group: str, groups: Sequence[ErrorGroup]) -> dict[str, Any]:
    """Return the form of `dead list --json`, version 1."""
    return {
        "version": 1,
        "group": group,
        "count": sum(letters.count for letters in groups),
        "groups": [_group_json(letters) for letters in groups],
    }


def _group_json(letters: ErrorGroup) -> dict[str, Any]:
    values = asdict(letters)
    spent, example = values.pop("spent"), values.pop("example")
    error_class = {"error_class": example.pop("error_class")}
    return plain(values) | error_class | in_units(spent) | {"example": example}


def groups_lines(groups: Sequence[ErrorGroup], width: int) -> Iterator[str]:
    """Yield the lines of `groups_text` without colours."""
    return (line.plain for line in groups_text(groups, width))


def groups_text(groups: Sequence[ErrorGroup], width: int) -> Iterator[Text]:
    """Yield a table of at most `width` columns.

    Each group has a line of figures, and under it its example. What is dead is red, as in `status`.
    """
    columns = [
        Column("count", tuple(str(letters.count) for letters in groups), style="red"),
        Column("disposition", tuple(letters.disposition for letters in groups), left=True),
        Column(
            "class",
            tuple(shown(letters.example.error_class, 64) for letters in groups),
            left=True,
            least=MIN_CLASS,
            style="bold",
        ),
        Column(
            "fingerprint",
            tuple(_fingerprint(letters.fingerprint) for letters in groups),
            left=True,
        ),
        Column("first", tuple(f"{letters.first_at:%m-%d %H:%M}" for letters in groups), left=True),
        Column("last", tuple(f"{letters.last_at:%m-%d %H:%M}" for letters in groups), left=True),
        Column("cost", tuple(map(_cost, groups))),
    ]
    (names, *lines), _ = fitted(columns, width, _LEAVING)
    yield names
    for line, letters in zip(lines, groups, strict=True):
        yield line
        yield Text(shortened(f"{' ' * columns[0].size}  {_example(letters)}", width))


def _cost(letters: ErrorGroup) -> str:
    spent = letters.spent
    cost = cost_units(spent.cost_micro, spent.unpriced)
    return "-" if cost is None else money(cost)


def _fingerprint(fingerprint: str) -> str:
    """Return the first digits, or what stands for a group of several errors."""
    is_several = fingerprint == OTHER_FINGERPRINTS.hex()
    return OTHER_ERRORS if is_several else fingerprint[:FINGERPRINT_SHOWN]


def _example(letters: ErrorGroup) -> str:
    example, spent = letters.example, letters.spent
    where = f"{example.batch}/{example.id}" if example.batch else example.id
    line = f"{shown(where, ERROR_SHOWN)}: " if where else ""
    line += shown(example.error, ERROR_SHOWN)
    if not letters.tasks:
        return line
    tokens = f"{spent.tokens_in}+{spent.tokens_out} tokens"
    return f"{number_of(spent.attempts, 'attempt')}, {tokens}; {line}"


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return values that JSON can hold: times as ISO texts, bytes as text or base64."""
    return {name: _value(value) for name, value in values.items()}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value.isoformat(timespec='microseconds')}Z"
    if isinstance(value, bytes):
        return _body(value)
    return plain(value) if isinstance(value, dict) else value


def _body(value: bytes) -> dict[str, str]:
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def in_units(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with costs in the currency's unit in place of those in millionths."""
    left = dict(values)
    micro, unpriced = left.pop("cost_micro"), left.pop("unpriced")
    paid = {"cost": cost_units(micro, unpriced), "unpriced_calls": unpriced}
    if "unsure_micro" in left:
        paid["unsure"] = units(left.pop("unsure_micro"))
    return left | paid


def shortened(text: str, width: int) -> str:
    """Return text of at most `width` characters."""
    return text if len(text) <= width else f"{text[: width - 3]}..."
