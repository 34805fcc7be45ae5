"""Reads the answer to the check's call as agents read theirs. Pure."""

from typing import Any

import orjson

from docllm.producer.checks.llm_call import SCHEMA, CheckAnswer
from docllm.producer.text.printable import shown
from docllm.schemas.errors import UnreachableError, UnsafeStateError
from docllm.schemas.settings.config import Structured
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.result.fitness import NO_OBJECT, AnswerRead, read_answer, unread_reply
from docllm.schemas.task.result.mending import read_json

_MODEL_SHOWN = 191
_ANY_OBJECT = {"type": "object"}  # what a server may answer that does not get the schema


def model_and_remark(
    answer: CheckAnswer, form: Structured, where: str, address: str
) -> tuple[str, str]:
    """Return the model that answers, and what agents would note of its answer, else nothing.

    `form` is that of the schema in the call; `where` and `address` name the server and its setting.
    Raises UnreachableError for a body that is no completion, and UnsafeStateError if agents could
    not use such an answer.
    """
    try:
        _, value, mended = read_json(answer.body)
    except orjson.JSONDecodeError as error:
        why = unread_reply(answer.body, error.msg)
        if why is NO_OBJECT:
            raise _no_completion(where, address) from None
        raise UnreachableError(f"{where} answers {answer.status}, but {why.text}") from None
    match value:
        case {"choices": [{"message": dict() as message} as choice, *_]}:
            schema = SCHEMA if form is Structured.JSON_SCHEMA else _ANY_OBJECT
            read = read_answer(choice.get("finish_reason"), message, schema)
            remark = _remark(answer, where, read, mended)
            return _model(value.get("model")), remark
    raise _no_completion(where, address)


def _no_completion(where: str, address: str) -> UnreachableError:
    return UnreachableError(f"{where} answers, but not with a completion; check {address}")


def _model(name: Any) -> str:
    return shown(name, _MODEL_SHOWN) if isinstance(name, str) else "an unnamed model"


def _remark(answer: CheckAnswer, where: str, read: AnswerRead, mended: tuple[str, ...]) -> str:
    unfit, _, oddities = read
    odd = [*(f"mended {name}" for name in mended), *oddities]
    names = shown("; ".join(odd))
    remarks = [f"agents take its answer although it is odd ({names})"] if odd else []
    if unfit is None:
        return "".join(remarks)
    if unfit.error_class == ErrorClass.TOO_LONG:
        if not answer.limited:
            remarks.append(f"its answer to a prompt of one line: {shown(unfit.text)}")
        return "; ".join(remarks)
    if unfit.is_correctable:
        remarks.append(
            f"{shown(unfit.text)}; tasks with a schema would be asked twice, and may fail"
        )
        return "; ".join(remarks)
    raise UnsafeStateError(
        f"{where} answers, but agents could not use its answer ({unfit.error_class}: "
        f"{shown(unfit.text)})"
    )
