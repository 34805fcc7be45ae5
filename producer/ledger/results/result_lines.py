"""A task's end as a line of an export: our format, or the OpenAI batch API's output file.

Pure: no database, no file.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import orjson

from docllm.schemas.task.failures import UNTRIED, ErrorClass
from docllm.schemas.task.line.overrides import Overrides
from docllm.schemas.task.provider_error import ProviderError
from docllm.schemas.task.result.answer import (
    as_written,
    read_result,
    readable,
    stored_json,
    strict_json,
)
from docllm.schemas.task.result.codec import is_value
from docllm.schemas.task.states import Status
from docllm.schemas.text.untrusted import describe_error
from docllm.schemas.text.wording import cost_units, one_line

# How an agent writes a provider's refusal: status, code if there is one, message.
_REFUSAL = re.compile(
    r"(?P<status>[45][0-9]{2})(?: (?P<code>[^\s:]++))?: (?P<message>.*)", re.DOTALL
)
_STATUS_NAMES = {status: status.name.lower() for status in Status}
# The value of `error` for a succeeded task.
EXPIRED_RESULT = "EXPIRED"
EXPIRED_TEXT = "an erasure deleted its result"
_CLASSES_OF_REFUSALS = frozenset(
    {
        ErrorClass.RATE,
        ErrorClass.RAMP,
        ErrorClass.CAPACITY,
        ErrorClass.MONEY,
        ErrorClass.AUTH,
        ErrorClass.SERVER,
        ErrorClass.AMBIGUOUS,
        ErrorClass.BAD_OUTPUT,
        ErrorClass.TOO_LONG,
        ErrorClass.FILTERED,
        ErrorClass.BAD_REQUEST,
    }
)


@dataclass(slots=True)
class Result:
    """The stored result of a succeeded task.

    `output` is where it lies, if outside the ledger, and `mended` what was mended when it was
    written there.
    """

    codec: int
    body: bytes
    model: str
    call_id: str
    created_at: datetime
    route: str = ""
    output: str = ""
    mended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Letter:
    """Why a dead task was given up; `call_id` is that of its last attempt.

    `provider_error` is what the provider's error named; None if that is not known.
    """

    error_class: str
    error_text: str
    died_at: datetime | None
    call_id: str = ""
    route: str = ""
    provider_error: ProviderError | None = None


@dataclass(slots=True)
class ExportedTask:
    """A task as an export sees it.

    Times are UTC without a zone. Tokens and cost are the sums over all attempts. `of_inbox`: a
    record of the inbox brought the task, so whoever may write there chose its id. `parent` is the
    id of the task that ordered it. `lost_output` is the URI of a result that cannot be read.
    `notes` are those beside the result, by kind. `losses` counts the runs that were cut off
    by the end of their agents. `overrides` ran in place of fields of the line. `unpriced` counts
    the calls whose cost is unknown.
    """

    task_id: int
    key: str
    status: Status
    counted_attempts: int
    input: bytes
    tokens_in: int
    tokens_out: int
    cost_micro: int
    result: Result | None
    letter: Letter | None
    of_inbox: bool = False
    parent: str | None = None
    lost_output: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)
    losses: int = 0
    overrides: Overrides = field(default_factory=dict)
    unpriced: int = 0

    @property
    def output(self) -> str:
        """The URI of the object that has the result, empty if the ledger has it."""
        return self.result.output if self.result else self.lost_output

    @property
    def lacks_usage(self) -> bool:
        """Whether an answer came, and the provider said nothing of its tokens."""
        answered = self.unpriced or (self.result is not None and self.result.call_id)
        return bool(answered) and not self.tokens_in and not self.tokens_out

    @property
    def ended_at(self) -> datetime | None:
        """When the task ended, None if it is not final or nobody stored the time."""
        if self.result is not None:
            return self.result.created_at
        return None if self.letter is None else self.letter.died_at


def attempts_of(counted: int, status: Status, death: str = "") -> int:
    """Return how many attempts to show to a person; `death` is the error class of a dead task.

    The ledger counts the failed attempts; the attempt that succeeded is one more. It counts a death
    without an attempt too.
    """
    return counted + (status == Status.SUCCEEDED) - (death in UNTRIED)


def docllm_line(task: ExportedTask) -> bytes | None:
    """Return the line of our format; a task that is not final has one too."""
    return orjson.dumps(fields_of(task), option=orjson.OPT_APPEND_NEWLINE)


def fields_of(task: ExportedTask) -> dict[str, Any]:
    """Return the fields of our line; JSON that stays as it was written is a fragment of orjson."""
    result, letter, ended_at = task.result, task.letter, task.ended_at
    answer, mended = None, result.mended if result else ()
    if result is not None:
        answer, in_body = read_result(task.input, result.codec, result.body)
        mended = mended or in_body
    line = {
        "id": task.key,
        "status": _STATUS_NAMES[task.status],
        "result": answer,
        "error": letter and {"code": letter.error_class, "message": letter.error_text},
        "attempts": attempts_of(
            task.counted_attempts, task.status, letter.error_class if letter else ""
        ),
        "model": result and result.model,
        "route": _route(task),
        "tokens_in": None if task.lacks_usage else task.tokens_in,
        "tokens_out": None if task.lacks_usage else task.tokens_out,
        "cost": cost_units(task.cost_micro, task.unpriced),
        "finished_at": ended_at and f"{ended_at.isoformat(timespec='microseconds')}Z",
    }
    if task.of_inbox:
        line["origin"] = "inbox"
    if task.unpriced and task.cost_micro:
        line["unpriced_calls"] = task.unpriced
    if task.losses:
        line["losses"] = task.losses
    if task.overrides:
        line["overrides"] = task.overrides
    if task.parent is not None:
        line["parent"] = task.parent
    if task.output:
        line["output"] = task.output
    if mended:
        line["mended"] = mended
    if task.notes:
        line |= task.notes
    return line


def _route(task: ExportedTask) -> str | None:
    """Return the route of the last attempt; None if there was none, or if nobody stored it."""
    end = task.result or task.letter
    return (end.route or None) if end else None


def openai_line(task: ExportedTask) -> bytes | None:
    """Return the line of the OpenAI batch API's output file.

    Returns None for a task that is not final, because that file has no line for it.
    """
    response, error = None, None
    if task.result is not None:
        response = {
            "status_code": 200,
            "request_id": task.result.call_id,
            "body": _completion(task.result),
        }
    elif task.letter is not None:
        response = _refusal(task.letter)
        if response is None:
            error = {"code": task.letter.error_class, "message": task.letter.error_text}
    elif task.status == Status.CANCELLED:
        error = {"code": "cancelled", "message": "the task was cancelled"}
    else:
        return None
    head = {"id": f"batch_req_{task.task_id}", "custom_id": task.key}
    return _line(head | {"response": response, "error": error})


def _refusal(letter: Letter) -> dict[str, Any] | None:
    """Return the provider's refusal, None if the task died of something else.

    The body has what the ledger keeps of the provider's error: its type, param and code, and its
    message, cut if it is long.
    """
    refusal = _REFUSAL.fullmatch(letter.error_text)
    if refusal is None or letter.error_class not in _CLASSES_OF_REFUSALS:
        return None
    code = refusal["code"]
    named = letter.provider_error or ProviderError(code, None, code)
    error = {
        "message": refusal["message"],
        "type": named.type or code or letter.error_class,
        "param": named.param,
        "code": named.code,
    }
    return {
        "status_code": int(refusal["status"]),
        "request_id": letter.call_id,
        "body": {"error": error},
    }


def with_unreadable_output(task: ExportedTask, error: Exception) -> ExportedTask:
    """Return a task whose stored end cannot be read, with the reason in the place of its result."""
    reason = one_line(
        f"what the ledger has stored of this task cannot be read: {describe_error(error)}"
    )
    return replace(task, result=None, letter=Letter(ErrorClass.UNREADABLE, reason, task.ended_at))


def lost_output(task: ExportedTask, uri: str, reason: str) -> ExportedTask:
    """Return a task whose result lies at `uri` and cannot be used, with the reason in its place."""
    letter = Letter(ErrorClass.UNREADABLE, reason, task.ended_at)
    return replace(task, result=None, letter=letter, lost_output=uri)


def expired(task: ExportedTask, at: datetime, route: str, call_id: str) -> ExportedTask:
    """Return a task whose result was deleted after its time, which stands in its place."""
    return replace(task, letter=Letter(EXPIRED_RESULT, EXPIRED_TEXT, at, call_id, route))


LineOf = Callable[[ExportedTask], bytes | None]


def _line(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def _completion(result: Result) -> Any:
    """Return the whole completion as it was sent, mended if it is not JSON.

    A handler's value takes the place of the message's text.
    """
    body = stored_json(result.codec, result.body)
    if is_value(result.codec):
        message = {"role": "assistant", "content": readable(body)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"object": "chat.completion", "model": result.model, "choices": [choice]}
    return as_written(strict_json(body))
