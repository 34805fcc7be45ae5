"""Shows one task or one quarantined record: as JSON for scripts, and as lines for a person.

No query, no decision. Inputs, answers and errors are shown without anything that a terminal would
act on.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson

from docllm.producer.ledger.dead_letters.selection import RECORD
from docllm.producer.ledger.quarantine import headers_of
from docllm.producer.ledger.task_story import (
    DeadLetter,
    PastAttempt,
    QuarantinedRecord,
    StoredResult,
    Story,
)
from docllm.producer.screen.dead_letters import ERROR_SHOWN, in_units, plain
from docllm.producer.text.printable import shown, shown_lines
from docllm.producer.text.times import written
from docllm.schemas.task.failures import UNTRIED, AttemptOutcome
from docllm.schemas.task.line.parsing import DEFAULT_TENANT
from docllm.schemas.task.line.strict_json import LineError
from docllm.schemas.text.wording import cost_text, money, number_of, units

# Characters shown of each.
INPUT_SHOWN = 1000
ANSWER_SHOWN = 500
TRACEBACK_LINES = 200
CHILDREN_SHOWN = 20


def story_json(story: Story, answer: Any = None) -> dict[str, Any]:
    """Return the form of `show --json` for a task, version 1: everything, uncut."""
    values = plain(asdict(story)) | {"answer": answer}
    values["status"] = story.status.name.lower()
    values["headers"] = _headers(story.headers)
    values["history"] = [_call_json(attempt) for attempt in story.history]
    values["locks"] = [plain(dict(lock)) for lock in story.locks]
    values["expired"] = list(story.expired)
    values["overrides"] = dict(story.overrides)
    values["result"] = None if story.result is None else _call_json(story.result)
    return {"version": 1, "kind": "task"} | values


def record_json(record: QuarantinedRecord) -> dict[str, Any]:
    """Return the form of `show --json` for a quarantined record, version 1."""
    values = plain(asdict(record)) | {"headers": _headers(record.headers)}
    return {"version": 1, "kind": "quarantine"} | values


def _call_json(called: PastAttempt | StoredResult) -> dict[str, Any]:
    """Return an attempt or a result with the id of its last call by the form's name for it."""
    values = in_units(plain(asdict(called)))
    call_id = values.pop("call_id")
    return values | {"trace_id": call_id}


def _headers(packed: bytes | None) -> Any:
    try:
        return headers_of(packed)
    except LineError as error:
        return {"unreadable": str(error)}


def story_lines(story: Story, answer: str | None = None, *, full: bool = False) -> Iterator[str]:
    """Yield the lines that describe a task for a person; with `full`, no text is cut."""
    since = "" if story.claimed_at is None else f" since {written(story.claimed_at)}"
    waits = f", waits {shown(story.waits, ERROR_SHOWN)}" if story.waits else ""
    by = f" in agent {shown(story.agent, 191)}" if story.agent else ""
    yield (
        f"task {shown(story.key, 191)} of batch {shown(story.batch, 191)}: "
        f"{story.status.name.lower()}{since}{by}{waits}"
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
        yield from _attempt_lines(attempt, full=full)
    for lock in story.locks:
        waiting = (
            f"; {number_of(lock['waiting'], 'task')} waiting for it" if lock["waiting"] else ""
        )
        yield f"  holds the lock {shown(lock['name'], 191)} since {written(lock['since'])}{waiting}"
    for hook in story.hooks:
        yield f"  hook {shown(hook, ERROR_SHOWN)}"
    yield from _input_lines(story, full=full)
    if answer is not None:
        size = number_of(len(answer), "character")
        yield f"  answer, {size}: {_excerpt(answer, ANSWER_SHOWN, full=full)}"


def _input_lines(story: Story, *, full: bool) -> Iterator[str]:
    if story.expired:
        yield f"  expired, and deleted from the ledger: {', '.join(story.expired)}"
    if "input" not in story.expired:
        yield f"  input, {len(story.input)} bytes: {_preview(story.input, full=full)}"
    for name, value in story.overrides.items():
        text = value if isinstance(value, str) else orjson.dumps(value).decode()
        yield f"  a replay has changed its {name}: {_excerpt(text, ANSWER_SHOWN, full=full)}"


def trace_line(trace_id: str, link: str) -> str:
    """Return the line that names a task's trace, and where a person reads it."""
    return f"  OpenTelemetry trace {trace_id}" + (f": {shown(link)}" if link else "")


def _children_lines(children: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield the tasks that a task ordered: how many of each state, and the first of them."""
    if not children:
        return
    states = Counter(child["status"] for child in children)
    numbers = ", ".join(f"{number} {status}" for status, number in sorted(states.items()))
    yield f"  ordered {number_of(len(children), 'task')}: {numbers}"
    for child in children[:CHILDREN_SHOWN]:
        yield f"    {shown(child['id'], 191)}: {child['status']}"
    if len(children) > CHILDREN_SHOWN:
        yield f"    ... and {len(children) - CHILDREN_SHOWN} more (--json shows all of them)"


def _counts(story: Story) -> Iterator[str]:
    """Yield how often a task was tried, lost and replayed, as far as it was."""
    yield f"{story.attempts} of {number_of(story.max_attempts, 'attempt')} counted"
    if story.losses:
        yield f"cut off {number_of(story.losses, 'time')} by the end of its agent"
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
    unsure = f" ({money(units(paid.unsure_micro))} of it estimated)" if paid.unsure_micro else ""
    return cost_text(paid.cost_micro, paid.unpriced) + unsure


def _attempt_lines(attempt: PastAttempt, *, full: bool) -> Iterator[str]:
    if attempt.outcome == AttemptOutcome.LOST:
        by = f" with agent {shown(attempt.agent, 191)}" if attempt.agent else ""
        yield f"    {written(attempt.started_at)}  lost{by}: {attempt.error_class}"
        yield f"      {shown(attempt.error, ERROR_SHOWN)}"
        if attempt.reply:
            late = _excerpt(attempt.reply, ANSWER_SHOWN, full=full)
            yield f"      its answer came too late, and counts for nothing: {late}"
        return
    number = "no attempt" if attempt.error_class in UNTRIED else f"attempt {attempt.attempt}"
    tokens = f"{attempt.tokens_in}+{attempt.tokens_out} tokens"
    spent = f"{(attempt.duration_ms or 0) / 1000:.1f} s, {tokens}, cost {_cost(attempt)}"
    yield (
        f"    {written(attempt.started_at)}  {number}, {attempt.outcome}"
        f"{_by(attempt.model, attempt.route)}: {attempt.error_class}, {spent}"
    )
    if attempt.call_id:
        yield f"      {_call_text(attempt)}"
    yield f"      {shown(attempt.error, ERROR_SHOWN)}"
    if attempt.reply:
        yield f"      the model said: {_excerpt(attempt.reply, ANSWER_SHOWN, full=full)}"


def record_lines(record: QuarantinedRecord, *, full: bool = False) -> Iterator[str]:
    """Yield the lines that describe a quarantined record for a person; with `full`, uncut."""
    replayed = f", replayed {written(record.replayed_at)}" if record.replayed_at else ""
    yield f"{RECORD}{record.number}: {record.disposition}{replayed}"
    yield (
        f"  its record: {shown(record.topic, 249)}/{record.partition}/{record.offset}, "
        f"quarantined {written(record.created_at)}, seen {number_of(record.seen, 'time')}"
    )
    yield f"  fingerprint {record.fingerprint}: {shown(record.error, ERROR_SHOWN)}"
    yield f"  key: {'none' if record.key is None else _preview(record.key, full=full)}"
    yield f"  headers: {_preview(record.headers, full=full)}"
    cut = ", cut: the beginning of a larger one" if record.cut else ""
    value = record.value
    text = "none" if value is None else f"{len(value)} bytes: {_preview(value, full=full)}"
    yield f"  value{cut}: {text}"


def _preview(value: bytes, *, full: bool) -> str:
    """Return bytes as text; those that are not UTF-8 are escaped."""
    return _excerpt(value.decode("utf-8", "backslashreplace"), INPUT_SHOWN, full=full)


def _excerpt(text: str, limit: int, *, full: bool) -> str:
    """Return the beginning of a text on one line, or all of it with its line ends."""
    if full:
        return shown_lines(text).replace("\n", "\n    ")
    return shown(text, limit) + (" ... (--full shows all of it)" if len(text) > limit else "")
