"""Shows dead letters as JSON for scripts, and as lines for a person.

No query, no decision. Text from foreign records is shown without anything that a terminal would act
on.
"""

import base64
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rich.text import Text

from docllm.producer.ledger.dead_letters.error_groups import ErrorGroup
from docllm.producer.ledger.dead_letters.selection import RECORD
from docllm.producer.ledger.quarantine import headers_of
from docllm.producer.ledger.tally import OTHER_FINGERPRINTS
from docllm.producer.ledger.task_story import (
    Child,
    DeadLetter,
    PastAttempt,
    QuarantinedRecord,
    StoredResult,
    Story,
)
from docllm.producer.text.columns import Column, fitted
from docllm.producer.text.printable import shown
from docllm.producer.text.times import written
from docllm.schemas.task.failures import UNTRIED
from docllm.schemas.task.line.parsing import DEFAULT_TENANT
from docllm.schemas.task.line.strict_json import LineError
from docllm.schemas.text.wording import number_of, units

# Characters shown of each.
FINGERPRINT_SHOWN = 8
INPUT_SHOWN = 1000
ERROR_SHOWN = 500
TRACEBACK_LINES = 200
CHILDREN_SHOWN = 20
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
    return _plain(values) | error_class | _money(spent) | {"example": example}


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
        Column("cost", tuple(money(letters.spent.cost_micro) for letters in groups)),
    ]
    (names, *lines), _ = fitted(columns, width, _LEAVING)
    yield names
    for line, letters in zip(lines, groups, strict=True):
        yield line
        yield Text(shortened(f"{' ' * columns[0].size}  {_example(letters)}", width))


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


def story_json(story: Story) -> dict[str, Any]:
    """Return the form of `dead show --json` for a task, version 1: everything, uncut."""
    values = _plain(asdict(story))
    values["status"] = story.status.name.lower()
    values["headers"] = _headers(story.headers)
    values["history"] = [_call_json(attempt) for attempt in story.history]
    values["locks"] = [_plain(asdict(lock)) for lock in story.locks]
    values["expired"] = list(story.expired)
    values["result"] = None if story.result is None else _call_json(story.result)
    return {"version": 1, "kind": "task"} | values


def record_json(record: QuarantinedRecord) -> dict[str, Any]:
    """Return the form of `dead show --json` for a quarantined record, version 1."""
    values = _plain(asdict(record)) | {"headers": _headers(record.headers)}
    return {"version": 1, "kind": "quarantine"} | values


def _call_json(called: PastAttempt | StoredResult) -> dict[str, Any]:
    """Return an attempt or a result with the id of its last call by the form's name for it."""
    values = _money(_plain(asdict(called)))
    call_id = values.pop("call_id")
    return values | {"trace_id": call_id}


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


def _headers(packed: bytes | None) -> Any:
    try:
        return headers_of(packed)
    except LineError as error:
        return {"unreadable": str(error)}


def _money(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with costs in the currency's unit in place of those in millionths."""
    costs = {"cost_micro": "cost", "unsure_micro": "unsure"}
    money = {costs[name]: units(value) for name, value in values.items() if name in costs}
    return {name: value for name, value in values.items() if name not in costs} | money


def story_lines(story: Story) -> Iterator[str]:
    """Yield the lines that describe a task for a person."""
    dead = "" if story.letter is not None else " (it is not dead)"
    since = "" if story.claimed_at is None else f" since {written(story.claimed_at)}"
    yield (
        f"task {shown(story.key, 191)} of batch {shown(story.batch, 191)}: "
        f"{story.status.name.lower()}{since}{dead}"
    )
    deadline = "" if story.expires_at is None else f", deadline {written(story.expires_at)}"
    is_usual = story.tenant in {"", DEFAULT_TENANT}
    tenant = "" if is_usual else f", tenant {story.tenant}"
    yield f"  type {story.type}{tenant}, loaded {written(story.created_at)}{deadline}"
    if story.ancestors:
        chain = ", by ".join(shown(key, 191) for key in story.ancestors)
        yield f"  ordered by {chain}"
    yield from _children_lines(story.children)
    yield f"  {', '.join(_counts(story))}"
    if story.letter is not None:
        yield from _letter_lines(story.letter)
    if story.result is not None:
        yield _result_line(story.result)
    failed = sum(attempt.error_class not in UNTRIED for attempt in story.history)
    yield f"  attempts that did not succeed: {failed or 'none'}"
    for attempt in story.history:
        yield from _attempt_lines(attempt)
    for lock in story.locks:
        waiting = f"; {number_of(lock.waiting, 'task')} waiting for it" if lock.waiting else ""
        yield f"  holds the lock {shown(lock.name, 191)} since {written(lock.since)}{waiting}"
    for hook in story.hooks:
        yield f"  hook {shown(hook, ERROR_SHOWN)}"
    if story.expired:
        yield f"  expired, and deleted from the ledger: {', '.join(story.expired)}"
    if "input" not in story.expired:
        yield f"  input, {len(story.input)} bytes: {_preview(story.input)}"


def trace_line(trace_id: str, link: str) -> str:
    """Return the line that names a task's trace, and where a person reads it."""
    return f"  OpenTelemetry trace {trace_id}" + (f": {shown(link)}" if link else "")


def _children_lines(children: Sequence[Child]) -> Iterator[str]:
    """Yield the tasks that a task ordered: how many of each state, and the first of them."""
    if not children:
        return
    states = Counter(child.status for child in children)
    numbers = ", ".join(f"{number} {status}" for status, number in sorted(states.items()))
    yield f"  ordered {number_of(len(children), 'task')}: {numbers}"
    for child in children[:CHILDREN_SHOWN]:
        yield f"    {shown(child.id, 191)}: {child.status}"
    if len(children) > CHILDREN_SHOWN:
        yield f"    ... and {len(children) - CHILDREN_SHOWN} more (--json shows all of them)"


def _counts(story: Story) -> Iterator[str]:
    """Yield how often a task was tried, lost and replayed, as far as it was."""
    yield f"{story.attempts} of {number_of(story.max_attempts, 'attempt')} counted"
    if story.lease_losses:
        losses = "agent was" if story.lease_losses == 1 else "agents were"
        yield f"{story.lease_losses} {losses} lost while it ran"
    if story.replays:
        yield f"replayed {number_of(story.replays, 'time')}"


def _letter_lines(letter: DeadLetter) -> Iterator[str]:
    yield (
        f"  dead letter: {letter.disposition}, {letter.error_class}, "
        f"fingerprint {letter.fingerprint}, died {written(letter.died_at)}"
        f"{_by(letter.model, letter.route)}"
    )
    if letter.origin_topic:
        yield (
            f"    its record: topic {letter.origin_topic}, partition {letter.origin_partition}, "
            f"offset {letter.origin_offset}"
        )
    yield f"    {shown(letter.error, ERROR_SHOWN)}"
    if letter.traceback:
        yield "    where its last attempt failed:"
        for line in letter.traceback.split("\n")[:TRACEBACK_LINES]:
            yield f"    {shown(line, ERROR_SHOWN)}"


def _result_line(result: StoredResult) -> str:
    spent = f"{result.tokens_in}+{result.tokens_out} tokens, cost {_cost(result)}"
    call = f", {_call_text(result)}" if result.call_id else ""
    answered = f"{written(result.created_at)}{_by(result.model, result.route)}"
    return f"  succeeded {answered}, {spent}{call}"


def _by(model: str, route: str) -> str:
    """Return which model and route answered, as far as it is known."""
    model_text = f" by {shown(model, 191)}" if model else ""
    return model_text + (f" on route {shown(route, 64)}" if route else "")


def _call_text(called: StoredResult | PastAttempt) -> str:
    """Return the id of a call, and the release that made it, if that is known."""
    release = f", release {shown(called.release, 64)}" if called.release else ""
    return f"call {shown(called.call_id, 191)}{release}"


def _cost(paid: StoredResult | PastAttempt) -> str:
    unsure = f" ({money(paid.unsure_micro)} of it estimated)" if paid.unsure_micro else ""
    return money(paid.cost_micro) + unsure


def _attempt_lines(attempt: PastAttempt) -> Iterator[str]:
    number = "no attempt" if attempt.error_class in UNTRIED else f"attempt {attempt.attempt}"
    spent = (
        f"{attempt.duration_ms / 1000:.1f} s, {attempt.tokens_in}+{attempt.tokens_out} tokens, "
        f"cost {_cost(attempt)}"
    )
    yield (
        f"    {written(attempt.started_at)}  {number}, {attempt.outcome}"
        f"{_by(attempt.model, attempt.route)}: {attempt.error_class}, {spent}"
    )
    if attempt.call_id:
        yield f"      {_call_text(attempt)}"
    yield f"      {shown(attempt.error, ERROR_SHOWN)}"


def record_lines(record: QuarantinedRecord) -> Iterator[str]:
    """Yield the lines that describe a quarantined record for a person."""
    replayed = f", replayed {written(record.replayed_at)}" if record.replayed_at else ""
    yield f"{RECORD}{record.number}: {record.disposition}{replayed}"
    yield (
        f"  its record: {shown(record.topic, 249)}/{record.partition}/{record.offset}, "
        f"quarantined {written(record.created_at)}, seen {number_of(record.seen, 'time')}"
    )
    yield f"  fingerprint {record.fingerprint}: {shown(record.error, ERROR_SHOWN)}"
    yield f"  key: {'none' if record.key is None else _preview(record.key)}"
    yield f"  headers: {_preview(record.headers)}"
    cut = ", cut: the beginning of a larger one" if record.cut else ""
    value = record.value
    yield f"  value{cut}: {'none' if value is None else f'{len(value)} bytes: {_preview(value)}'}"


def _preview(value: bytes) -> str:
    # An invalid byte becomes four characters; a character takes up to four bytes.
    text = value[: 4 * INPUT_SHOWN].decode("utf-8", "backslashreplace")
    is_cut = len(text) > INPUT_SHOWN or len(value) > 4 * INPUT_SHOWN
    return shown(text, INPUT_SHOWN) + (" ... (--json shows all of it)" if is_cut else "")


def shortened(text: str, width: int) -> str:
    """Return text of at most `width` characters."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def money(cost_micro: int) -> str:
    """Return a cost in the currency's unit."""
    return f"{units(cost_micro):,.4f}"
