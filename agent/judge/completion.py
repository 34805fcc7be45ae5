"""Reads a success: its finish reason, its usage, and whether its answer fits the request."""

from dataclasses import dataclass
from typing import Any

import orjson

from docllm.agent.ports.outcome import Failure
from docllm.schemas.refusals.signals import Refusal, of_success
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.result.codec import COMPLETION
from docllm.schemas.task.result.fitness import (
    NO_OBJECT,
    AnswerRead,
    Unfit,
    read_answer,
    unread_reply,
)
from docllm.schemas.task.result.json_answer import read_json
from docllm.schemas.text.untrusted import as_contained, describe_error
from docllm.schemas.text.wording import one_line

_MAX_TOKENS = 2**31 - 1

# The failures of answers that the provider made, and bills.
ANSWERED = frozenset({ErrorClass.BAD_OUTPUT, ErrorClass.TOO_LONG, ErrorClass.FILTERED})
_OK = 200
_NO_ERROR = frozenset({"", "none", "null", "ok", "success", "no error", "0", "200"})
_NOTHING = AnswerRead()
_NOT_MENDED: tuple[str, ...] = ()


@dataclass(slots=True)
class Completion:
    """A success that was read.

    `failure` is None if its answer can be used; then `codec` is how the result is stored, and
    `oddities` are what to say of the answer. `tokens_cached` is a part of `tokens_in`.
    """

    failure: Failure | None
    model: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    codec: int = COMPLETION
    oddities: tuple[str, ...] = ()

    @property
    def is_of_unknown_cost(self) -> bool:
        """Whether the provider made an answer and said nothing of its tokens."""
        is_answer = self.failure is None or self.failure.error_class in ANSWERED
        return is_answer and not self.tokens_in and not self.tokens_out


def read_completion(
    body: bytes, *, schema: dict[str, Any] | None, verbatim: bool, strict: bool = False
) -> Completion:
    """Read a completion and check its answer.

    With `verbatim`, any answer that is not an error is accepted: the whole body, with its
    `finish_reason`, is the result. With `strict`, nothing is taken off around the answer. A body
    on which a library fails is BAD_OUTPUT.
    """
    try:
        return _read(body, schema, verbatim=verbatim, strict=strict)
    except BaseException as error:  # noqa: BLE001 - the reply is one task's, and so is the failure
        return Completion(judging_failed(as_contained(error)))


def _read(
    body: bytes, schema: dict[str, Any] | None, *, verbatim: bool, strict: bool
) -> Completion:
    value, mended = None, _NOT_MENDED
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            json = read_json(body)
            value, mended = json.value, json.mended
        except orjson.JSONDecodeError as error:
            unread = unread_reply(body, error.msg)
            # A page of a server that stands in front, or a text, may say what it refuses.
            if unread is NO_OBJECT:
                return Completion(failure_of(of_success(body)))
            return Completion(_unfit_answer(unread))
    if not isinstance(value, dict):
        return Completion(failure_of(of_success(value)))
    model, usage = value.get("model"), value.get("usage")
    tokens_in = tokens_out = tokens_cached = 0
    if type(usage) is dict:
        tokens_in = _count(usage, "prompt_tokens", "input_tokens")
        tokens_out = _count(usage, "completion_tokens", "output_tokens")
        details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
        if type(details) is dict:
            tokens_cached = min(tokens_in, _count(details, "cached_tokens"))
    failure, read = _contained_answer(value, schema, verbatim=verbatim, strict=strict)
    return Completion(
        failure,
        model if type(model) is str else "",
        tokens_in,
        tokens_out,
        tokens_cached,
        read.codec,
        (*(f"mended {name}" for name in mended), *read.oddities) if mended else read.oddities,
    )


def _contained_answer(
    value: dict[str, Any], schema: dict[str, Any] | None, *, verbatim: bool, strict: bool
) -> tuple[Failure | None, AnswerRead]:
    """Return the failure of a completion, if it has one, and what was read of its answer.

    If a library fails on the reply, return that failure; the reply's usage is still counted.
    """
    try:
        choice = _first_choice(value)
        if choice is None or "error" in value or "error" in choice:
            if (failure := _failure_in(value)) is not None:
                return failure, _NOTHING
            choice = value["choices"][0]
        reason, message = choice.get("finish_reason"), choice["message"]
        read = read_answer(reason, message, schema, verbatim=verbatim, strict=strict)
        return None if read.unfit is None else _failure_beside(value, read.unfit), read
    except BaseException as error:  # noqa: BLE001 - the answer is one task's, and so is the failure
        return judging_failed(as_contained(error)), _NOTHING


def judging_failed(error: BaseException) -> Failure:
    """Return the failure of a reply whose judging failed."""
    return Failure(
        ErrorClass.BAD_OUTPUT, one_line(f"the reply cannot be judged: {describe_error(error)}")
    )


def _count(usage: dict[str, Any], *names: str) -> int:
    """Return the first count under these names; 0 if there is none.

    A count may be written as 12.0.
    """
    for name in names:
        count = usage.get(name)
        if type(count) is int and 0 <= count <= _MAX_TOKENS:
            return count
        if isinstance(count, int | float) and not isinstance(count, bool):
            return int(min(max(count, 0), _MAX_TOKENS))
    return 0


def _failure_beside(value: dict[str, Any], unfit: Unfit) -> Failure:
    """Return the failure of an answer; what stands beside an empty one says why it is empty."""
    if unfit.is_empty and (refusal := of_success(value)).error_class != ErrorClass.SERVER:
        return failure_of(refusal)
    return _unfit_answer(unfit)


def failure_of(refusal: Refusal) -> Failure:
    """Return the failure of a reply that is a refusal."""
    return Failure(refusal.error_class, refusal.text, provider_error=refusal.provider_error)


def _unfit_answer(unfit: Unfit) -> Failure:
    return Failure(unfit.error_class, unfit.text, is_of_answer=unfit.is_correctable)


def _says_something(error: Any) -> bool:
    """Return whether the value of `error` names one; some servers send it with every answer."""
    if isinstance(error, dict):
        return any(_says_something(value) for value in error.values())
    if isinstance(error, str):
        return error.strip().lower() not in _NO_ERROR
    return bool(error) and error != _OK


def _first_choice(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return the first choice of a reply; None if it is none with a message."""
    choices = value.get("choices")
    choice = choices[0] if type(choices) is list and choices else None
    is_whole = type(choice) is dict and type(choice.get("message")) is dict
    return choice if is_whole else None


def _failure_in(value: dict[str, Any]) -> Failure | None:
    """Return the failure of a reply that has an error, or no message."""
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    for part in (value, choice):  # an error in the middle of an answer is in the choice
        if isinstance(part, dict) and (error := part.get("error")) and _says_something(error):
            return failure_of(of_success(part))
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return failure_of(of_success(value))
    return None
