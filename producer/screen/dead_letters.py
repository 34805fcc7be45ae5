"""Shows dead letters as JSON for scripts, and as lines for a person.

No query, no decision. Text from foreign records is shown without anything that a terminal would act
on.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from producer.ledger.dead_letters import Group
from producer.ledger.history import Attempt, Letter, Record, Result, Story
from producer.ledger.quarantine import headers_of
from producer.ledger.selection import RECORD
from producer.text.columns import Column, fitted
from producer.text.printable import shown
from producer.text.times import written
from schemas.task.line_json import LineError
from schemas.task.wording import counted

FINGERPRINT_SHOWN = 8
INPUT_SHOWN, ERROR_SHOWN = 1000, 500
CLASS_LEAST = 12
MICRO = 1_000_000
_LEAVING = ("first", "last", "disposition", "cost", "fingerprint")


def groups_json(group: str, groups: Sequence[Group]) -> dict[str, Any]:
    """Return the form of `dead list --json`, version 1."""
    return {
        "version": 1,
        "group": group,
        "count": sum(one.count for one in groups),
        "groups": [_group_json(one) for one in groups],
    }


def _group_json(one: Group) -> dict[str, Any]:
    values = asdict(one)
    spent, example = values.pop("spent"), values.pop("example")
    return (
        _plain(values)
        | {"error_class": example.pop("error_class")}
        | _money(spent)
        | {"example": example}
    )


def groups_lines(groups: Sequence[Group], width: int) -> Iterator[str]:
    """Yield a table of at most `width` columns.

    Each group has a line of figures, and under it its example.
    """
    columns = [
        Column("count", tuple(str(one.count) for one in groups)),
        Column("disposition", tuple(one.disposition for one in groups), left=True),
        Column(
            "class",
            tuple(shown(one.example.error_class, 64) for one in groups),
            left=True,
            least=CLASS_LEAST,
        ),
        Column(
            "fingerprint", tuple(one.fingerprint[:FINGERPRINT_SHOWN] for one in groups), left=True
        ),
        Column("first", tuple(f"{one.first_at:%m-%d %H:%M}" for one in groups), left=True),
        Column("last", tuple(f"{one.last_at:%m-%d %H:%M}" for one in groups), left=True),
        Column("cost", tuple(money(one.spent.cost_micro) for one in groups)),
    ]
    (names, *lines), _ = fitted(columns, width, _LEAVING)
    yield names
    for line, one in zip(lines, groups, strict=True):
        yield line
        yield shortened(f"{' ' * columns[0].size}  {_example(one)}", width)


def _example(one: Group) -> str:
    where = f"{one.example.batch}/{one.example.id}" if one.example.batch else one.example.id
    spent = (
        f"{counted(one.spent.attempts, 'attempt')}, "
        f"{one.spent.tokens_in}+{one.spent.tokens_out} tokens; "
        if one.tasks
        else ""
    )
    return f"{spent}{shown(where, ERROR_SHOWN)}: {shown(one.example.error, ERROR_SHOWN)}"


def story_json(one: Story) -> dict[str, Any]:
    """Return the form of `dead show --json` for a task, version 1: everything, uncut."""
    values = _plain(asdict(one))
    values["status"] = one.status.name.lower()
    values["headers"] = _headers(one.headers)
    values["history"] = [_money(_plain(asdict(each))) for each in one.history]
    values["result"] = None if one.result is None else _money(_plain(asdict(one.result)))
    return {"version": 1, "kind": "task"} | values


def record_json(one: Record) -> dict[str, Any]:
    """Return the form of `dead show --json` for a quarantined record, version 1."""
    return (
        {"version": 1, "kind": "quarantine"}
        | _plain(asdict(one))
        | {"headers": _headers(one.headers)}
    )


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in values.items()}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value.isoformat(timespec='microseconds')}Z"
    if isinstance(value, bytes):
        return _body(value)
    return _plain(value) if isinstance(value, dict) else value


def _body(value: bytes) -> dict[str, str]:
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _headers(kept: bytes | None) -> Any:
    try:
        return headers_of(kept)
    except LineError as error:
        return {"unreadable": str(error)}


def _money(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "cost_micro"} | {
        "cost": values["cost_micro"] / MICRO
    }


def story_lines(one: Story) -> Iterator[str]:
    """Yield the lines that describe a task for a person."""
    dead = "" if one.letter is not None else " (it is not dead)"
    yield (
        f"task {shown(one.key, 191)} of batch {shown(one.batch, 191)}: "
        f"{one.status.name.lower()}{dead}"
    )
    deadline = "" if one.expires_at is None else f", deadline {written(one.expires_at)}"
    yield (
        f"  number {one.number}, type {one.type}, tenant {one.tenant}, "
        f"loaded {written(one.created_at)}{deadline}"
    )
    yield (
        f"  attempts {one.attempts} of {one.max_attempts}, lease losses {one.lease_losses}, "
        f"replays {one.replays}; fence {one.fence}"
    )
    if one.letter is not None:
        yield from _letter_lines(one.letter)
    if one.result is not None:
        yield _result_line(one.result)
    yield f"  attempts that did not succeed: {len(one.history) or 'none'}"
    for attempt in one.history:
        yield from _attempt_lines(attempt)
    yield f"  input, {len(one.input)} bytes: {_preview(one.input)}"


def _letter_lines(letter: Letter) -> Iterator[str]:
    yield (
        f"  dead letter: {letter.disposition}, {letter.error_class}, "
        f"fingerprint {letter.fingerprint}, died {written(letter.died_at)}"
    )
    if letter.origin_topic:
        yield (
            "    its record: "
            f"{letter.origin_topic}/{letter.origin_partition}/{letter.origin_offset}, "
            f"fence {letter.fence}"
        )
    yield f"    {shown(letter.error, ERROR_SHOWN)}"


def _result_line(result: Result) -> str:
    spent = f"{result.tokens_in}+{result.tokens_out} tokens, {money(result.cost_micro)}"
    return (
        f"  succeeded {written(result.created_at)} by {shown(result.model, 191)}, {spent}, "
        f"trace {shown(result.trace_id, 191) or '-'}"
    )


def _attempt_lines(one: Attempt) -> Iterator[str]:
    spent = (
        f"{one.duration_ms / 1000:.1f} s, {one.tokens_in}+{one.tokens_out} tokens, "
        f"{money(one.cost_micro)}"
    )
    yield (
        f"    {written(one.started_at)}  attempt {one.attempt}, {one.outcome}: "
        f"{one.error_class}, {spent}"
    )
    yield f"      trace {shown(one.trace_id, 191) or '-'}"
    yield f"      {shown(one.error, ERROR_SHOWN)}"


def record_lines(one: Record) -> Iterator[str]:
    """Yield the lines that describe a quarantined record for a person."""
    replayed = f", replayed {written(one.replayed_at)}" if one.replayed_at else ""
    yield f"{RECORD}{one.number}: {one.disposition}{replayed}"
    yield (
        f"  its record: {shown(one.topic, 249)}/{one.partition}/{one.offset}, "
        f"set aside {written(one.created_at)}, seen {one.seen} times"
    )
    yield f"  fingerprint {one.fingerprint}: {shown(one.error, ERROR_SHOWN)}"
    yield f"  key: {'none' if one.key is None else _preview(one.key)}"
    yield f"  headers: {_preview(one.headers)}"
    cut = ", cut: the beginning of a larger one" if one.cut else ""
    yield (
        f"  value{cut}: "
        f"{'none' if one.value is None else f'{len(one.value)} bytes: {_preview(one.value)}'}"
    )


def _preview(value: bytes) -> str:
    # An invalid byte becomes four characters; a character takes up to four bytes.
    text = value[: 4 * INPUT_SHOWN].decode("utf-8", "backslashreplace")
    more = len(text) > INPUT_SHOWN or len(value) > 4 * INPUT_SHOWN
    return shown(text, INPUT_SHOWN) + (" ... (--json shows all of it)" if more else "")


def shortened(text: str, width: int) -> str:
    """Return text of at most `width` characters."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def money(cost_micro: int) -> str:
    """Return a cost in the currency's unit."""
    return f"{cost_micro / MICRO:,.4f}"
