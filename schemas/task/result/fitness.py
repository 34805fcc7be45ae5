"""Says whether the answer of a completion can be used: its ending, its text, its schema.

Agents judge their replies by it, and `check` the one that it asks for. Pure.
"""

from typing import Any, NamedTuple

import orjson

from docllm.schemas.task.answer_schema.bounds import is_soon_explained
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.result.codec import COMPLETION, COMPLETION_AFTER_THOUGHTS
from docllm.schemas.task.result.ending import FinishReason, ending_of, reason_text
from docllm.schemas.task.result.json_answer import json_answer
from docllm.schemas.task.result.message_text import is_empty, refusal_of, text_of, thoughts_of
from docllm.schemas.task.result.wrapping import without_thoughts
from docllm.schemas.text.wording import one_line

_ENDINGS = {
    FinishReason.CUT: ErrorClass.TOO_LONG,
    FinishReason.FILTERED: ErrorClass.FILTERED,
    FinishReason.FAILED: ErrorClass.SERVER,
    FinishReason.TOOLS: ErrorClass.BAD_OUTPUT,
    FinishReason.MALFORMED: ErrorClass.BAD_OUTPUT,
}
_ADVICE = {
    FinishReason.CUT: "; the answer was cut: raise max_tokens, or split the document",
    FinishReason.TOOLS: "; the model called a tool instead of answering",
}
_REASON_CHARS = 40
# What was odd about an answer that was taken all the same.
THOUGHTS = "thoughts before it"
WRAPPED = "a fence or thoughts around it"
IN_THOUGHTS = "it is in the thoughts"


class Unfit(NamedTuple):
    """Why an answer cannot be used; `is_correctable` by the model, which may be asked again.

    `is_empty` if there is no answer at all.
    """

    error_class: ErrorClass
    text: str
    is_correctable: bool = False
    is_empty: bool = False


class AnswerRead(NamedTuple):
    """An answer that was read.

    `codec` is how its result is stored. `oddities` are what to say of an answer that can be used.
    """

    unfit: Unfit | None = None
    codec: int = COMPLETION
    oddities: tuple[str, ...] = ()


_PLAIN = AnswerRead()
# A page of a server that stands in front of the provider, or another API.
NO_OBJECT = Unfit(
    ErrorClass.SERVER,
    "the reply is not a JSON object; does llm.base_url name an OpenAI-compatible API?",
)
_STREAMED = (b"data:", b"event:", b":")  # how server-sent events begin
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")  # how gzip and Zstandard begin


def unread_reply(body: bytes, error: str) -> Unfit:
    """Return why a reply that is no JSON cannot be used; `error` is what a reader says."""
    start = body[:100].lstrip()
    if start.startswith(b"{"):
        text = one_line(f"the reply is not JSON: {error} ({len(body)} bytes)")
        return Unfit(ErrorClass.BAD_OUTPUT, text)
    if not body.strip():
        text = "the reply is empty: the server took the call and gave no answer"
        return Unfit(ErrorClass.SERVER, text)
    if start.startswith(_STREAMED):
        return Unfit(
            ErrorClass.SERVER,
            "the server streams its answer (server-sent events) although the request does not ask "
            "for a stream; make the server, or the gateway before it, answer whole",
        )
    if start.startswith(_COMPRESSED):
        return Unfit(
            ErrorClass.SERVER,
            "the reply is compressed, but its headers have no Content-Encoding; turn compression "
            "off in the server, or in the gateway before it",
        )
    return NO_OBJECT


def read_answer(
    reason: Any,
    message: dict[str, Any],
    schema: dict[str, Any] | None,
    *,
    verbatim: bool = False,
    strict: bool = False,
) -> AnswerRead:
    """Read the answer in a message, which ended for this `finish_reason`.

    With `verbatim` any answer is taken that the server did not break off. With `strict` its text
    is taken as it is.
    """
    ending = FinishReason.WHOLE if reason == "stop" else ending_of(reason)
    odd = (f"finish_reason {_shown(reason)}",) if ending is FinishReason.UNKNOWN else ()
    if verbatim:
        is_broken = ending is FinishReason.FAILED and not refusal_of(message)
        return AnswerRead(_ended(ending, reason) if is_broken else None, oddities=odd)
    content = message.get("content")
    if refusal := message.get("refusal") if type(content) is str else refusal_of(message):
        text = one_line(f"the model refused: {reason_text(refusal)}")
        return AnswerRead(Unfit(ErrorClass.FILTERED, text))
    if ending is not FinishReason.WHOLE and ending in _ENDINGS:
        return AnswerRead(_ended(ending, reason))
    if schema is not None:
        read = _schema_answer(message, schema, strict=strict)
    else:
        read = _text_answer(message, strict=strict)
    if not odd:
        return read
    if read.unfit is None:
        return read._replace(oddities=odd + read.oddities)
    text = one_line(f"{read.unfit.text} ({odd[0]})")
    return AnswerRead(read.unfit._replace(text=text))


def _shown(reason: Any) -> str:
    return one_line(reason_text(reason))[:_REASON_CHARS]


def _ended(ending: FinishReason, reason: Any) -> Unfit:
    text = one_line(f"finish_reason {reason_text(reason)}") + _ADVICE.get(ending, "")
    return Unfit(_ENDINGS[ending], text)


def _text_answer(message: dict[str, Any], *, strict: bool) -> AnswerRead:
    content = message.get("content")
    if type(content) is not str:
        content = text_of(content)
    if not isinstance(content, str) or not content.strip():
        return _without_text(message, content)
    may_have_tags = "<" in content or "[" in content or "\u25c1" in content
    if strict or not may_have_tags or (answer := without_thoughts(content)) is content:
        return _PLAIN
    if is_empty(answer):
        return _bad_output(f"the answer has {len(content):,} characters of thoughts alone")
    return AnswerRead(codec=COMPLETION_AFTER_THOUGHTS, oddities=(THOUGHTS,))


def _without_text(message: dict[str, Any], content: Any) -> AnswerRead:
    if not is_empty(content):
        kind = type(content).__name__
        return _bad_output(f"the content of the answer is a JSON value ({kind}), not a text")
    name, thoughts = thoughts_of(message)
    if not name:
        return AnswerRead(Unfit(ErrorClass.BAD_OUTPUT, "the answer is empty", is_empty=True))
    return _bad_output(
        f"the answer is empty, while {name} has {len(thoughts):,} characters: the model may have "
        "used up max_tokens, or the server's reasoning parser does not fit the model"
    )


def _schema_answer(message: dict[str, Any], schema: dict[str, Any], *, strict: bool) -> AnswerRead:
    content = text_of(message.get("content"))
    is_missing = is_empty(content)
    try:
        answer = json_answer(message, strict=strict)
    except orjson.JSONDecodeError as error:
        if is_missing:
            return _without_text(message, content)
        return AnswerRead(_correctable(f"the answer is not JSON: {error.msg}"))
    except orjson.JSONEncodeError:
        return _bad_output("the answer is nested too deeply to be checked against the schema")
    unfit = _schema_failure(answer.value, schema)
    if unfit is not None:
        return AnswerRead(unfit)
    odd = [f"mended {name}" for name in answer.mended]
    if is_missing:
        odd.append(IN_THOUGHTS)
    elif answer.was_wrapped:
        odd.append(WRAPPED)
    return AnswerRead(oddities=tuple(odd)) if odd else _PLAIN


def _schema_failure(answer: Any, schema: dict[str, Any]) -> Unfit | None:
    # Its library is loaded where there is a schema.
    from docllm.schemas.task.answer_schema.validator import (  # noqa: PLC0415
        first_error,
        validator_of,
    )

    try:
        validator = validator_of(schema)
    except ValueError as error:
        return Unfit(
            ErrorClass.BAD_REQUEST, one_line(f"the schema of the request cannot be used: {error}")
        )
    try:
        if validator.is_valid(answer):
            return None
        mismatch = first_error(validator, answer) if is_soon_explained(schema, answer) else None
    except ValueError:
        return Unfit(
            ErrorClass.BAD_OUTPUT,
            "the answer is nested too deeply to be checked against the schema",
        )
    if mismatch is None:
        return _correctable("the answer does not fit the schema")
    place = "/".join(map(str, mismatch.instance_path))
    return _correctable(f"the answer does not fit the schema at /{place}: {mismatch.message}")


def _bad_output(text: str) -> AnswerRead:
    return AnswerRead(Unfit(ErrorClass.BAD_OUTPUT, text))


def _correctable(text: str) -> Unfit:
    return Unfit(ErrorClass.BAD_OUTPUT, one_line(text), is_correctable=True)
