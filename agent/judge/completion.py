"""Reads a success: its finish reason, its usage, and whether its answer fits the request.

Tested by tests/unit/agent/judge/test_judgement.py.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from agent.judge.signals import hidden_status, of_value
from agent.ports.outcome import Failure
from schemas.task.answer_schema.bounds import is_soon_explained
from schemas.task.answer_schema.validator import first_error, validator_of
from schemas.task.failures import ErrorClass
from schemas.task.result.message_text import text_of
from schemas.text.untrusted import contained, describe_error
from schemas.text.wording import one_line

_MAX_TOKENS = 2**31 - 1

# The providers' finish reasons. Any other finish reason is BAD_OUTPUT.
_FINISHED = frozenset({None, "stop", "end_turn", "eos", "stop_sequence"})
_ENDINGS = {
    "length": ErrorClass.TOO_LONG,
    "max_tokens": ErrorClass.TOO_LONG,
    "model_context_window_exceeded": ErrorClass.TOO_LONG,
    "content_filter": ErrorClass.FILTERED,
    "sensitive": ErrorClass.FILTERED,
    "refusal": ErrorClass.FILTERED,
    "error": ErrorClass.SERVER,
    "network_error": ErrorClass.SERVER,
    "insufficient_system_resource": ErrorClass.SERVER,
    "abort": ErrorClass.SERVER,
}
# The failures of answers that the provider made, and bills.
_ANSWERED = frozenset({ErrorClass.BAD_OUTPUT, ErrorClass.TOO_LONG, ErrorClass.FILTERED})
_ADVICE = {ErrorClass.TOO_LONG: "; the answer was cut: raise max_tokens, or split the document"}


@dataclass(frozen=True, slots=True)
class Completion:
    """A success that was read.

    `failure` is None if its answer can be used. `tokens_cached` is a part of `tokens_in`.
    """

    failure: Failure | None
    model: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0

    @property
    def is_of_unknown_cost(self) -> bool:
        """Whether the provider made an answer and said nothing of its tokens."""
        is_answer = self.failure is None or self.failure.error_class in _ANSWERED
        return is_answer and not self.tokens_in and not self.tokens_out


def read_completion(body: bytes, *, schema: dict[str, Any] | None, verbatim: bool) -> Completion:
    """Read a completion and check its answer.

    With `verbatim`, any answer that is not an error is accepted: the whole body, with its
    `finish_reason`, is the result. A body on which a library fails is BAD_OUTPUT.
    """
    try:
        with contained():
            return _read(body, schema, verbatim=verbatim)
    except Exception as error:  # noqa: BLE001 - the reply is one task's, and so is the failure
        return Completion(judging_failed(error))


def _read(body: bytes, schema: dict[str, Any] | None, *, verbatim: bool) -> Completion:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if body.lstrip().startswith(b"{"):
            text = one_line(f"the reply is not JSON: {error.msg} ({len(body)} bytes)")
            return Completion(Failure(ErrorClass.BAD_OUTPUT, text))
        value = None  # a page of a server that stands in front of the provider
    if not isinstance(value, dict):
        return Completion(
            Failure(
                ErrorClass.SERVER,
                "the reply is not a JSON object; does llm.base_url name an OpenAI-compatible API?",
            )
        )
    model, usage = value.get("model"), value.get("usage")
    tokens_in = _count(usage, "prompt_tokens", "input_tokens")
    return Completion(
        _contained_failure_in(value, schema, verbatim=verbatim),
        model if isinstance(model, str) else "",
        tokens_in,
        _count(usage, "completion_tokens", "output_tokens"),
        min(tokens_in, _cached(usage)),
    )


def _cached(usage: Any) -> int:
    """Return how many tokens of the prompt came from the provider's cache."""
    if not isinstance(usage, dict):
        return 0
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    return _count(details, "cached_tokens") if details else 0


def _contained_failure_in(
    value: dict[str, Any], schema: dict[str, Any] | None, *, verbatim: bool
) -> Failure | None:
    """Return the result of `_failure_in`.

    If a library fails on the reply, return that failure; the reply's usage is still counted.
    """
    try:
        with contained():
            return _failure_in(value, schema, verbatim=verbatim)
    except Exception as error:  # noqa: BLE001 - the answer is one task's, and so is the failure
        return judging_failed(error)


def judging_failed(error: BaseException) -> Failure:
    """Return the failure of a reply whose judging failed."""
    return Failure(
        ErrorClass.BAD_OUTPUT, one_line(f"the reply cannot be judged: {describe_error(error)}")
    )


def _count(usage: Any, *names: str) -> int:
    """Return the first count under these names; 0 if there is none.

    A count may be written as 12.0.
    """
    if not isinstance(usage, dict):
        return 0
    count = next((usage[name] for name in names if type(usage.get(name)) in {int, float}), 0)
    return int(min(max(count, 0), _MAX_TOKENS))


def _failure_in(
    value: dict[str, Any], schema: dict[str, Any] | None, *, verbatim: bool
) -> Failure | None:
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    for part in (value, choice):  # an error in the middle of an answer is in the choice
        if isinstance(part, dict) and part.get("error"):
            return of_value(hidden_status(part), part)
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        return Failure(
            ErrorClass.SERVER,
            "the reply has no choices with a message; "
            "does llm.base_url name an OpenAI-compatible API?",
        )
    ended = _ending_failure(choice.get("finish_reason"), message)
    if verbatim:
        return ended if ended is not None and ended.error_class == ErrorClass.SERVER else None
    return ended or _answer_failure(text_of(message.get("content")), schema)


def _ending_failure(reason: Any, message: dict[str, Any]) -> Failure | None:
    if refusal := message.get("refusal"):
        return Failure(ErrorClass.FILTERED, one_line(f"the model refused: {_word(refusal)}"))
    if isinstance(reason, str | None) and reason in _FINISHED:
        return None
    error_class = _ENDINGS.get(_word(reason), ErrorClass.BAD_OUTPUT)
    return Failure(
        error_class, one_line(f"finish_reason {_word(reason)}") + _ADVICE.get(error_class, "")
    )


def _word(value: Any) -> str:
    """Return a text as it is, and the type of anything else, which may be nested too deep."""
    return value if isinstance(value, str) else f"({type(value).__name__})"


def _answer_failure(content: Any, schema: dict[str, Any] | None) -> Failure | None:
    if not isinstance(content, str) or not content.strip():
        return Failure(ErrorClass.BAD_OUTPUT, "the answer is empty")
    return None if schema is None else _schema_failure(content, schema)


def _schema_failure(content: str, schema: dict[str, Any]) -> Failure | None:
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        return _unfit(f"the answer is not JSON: {error.msg}")
    try:
        validator = validator_of(schema)
    except ValueError as error:
        return Failure(
            ErrorClass.BAD_REQUEST, one_line(f"the schema of the request cannot be used: {error}")
        )
    try:
        if validator.is_valid(answer):
            return None
        mismatch = first_error(validator, answer) if is_soon_explained(schema, answer) else None
    except ValueError:
        return Failure(
            ErrorClass.BAD_OUTPUT,
            "the answer is nested too deeply to be checked against the schema",
        )
    if mismatch is None:
        return _unfit("the answer does not fit the schema")
    place = "/".join(map(str, mismatch.instance_path))
    return _unfit(f"the answer does not fit the schema at /{place}: {mismatch.message}")


def _unfit(text: str) -> Failure:
    """Return the failure of an answer that the model may correct."""
    return Failure(ErrorClass.BAD_OUTPUT, one_line(text), is_of_answer=True)
