"""Asks a model once to correct an answer that does not fit its schema. Pure."""

from typing import Any

import orjson

from docllm.agent.handlers.calls.request import body_bytes
from docllm.agent.ports import CallFailed, Reply
from docllm.agent.ports.outcome import Dead, Retry, Snooze, Succeeded
from docllm.schemas.task.result.answer import text_of_answer
from docllm.schemas.task.result.codec import COMPLETION

_MAX_CHARS = 100_000  # a longer answer or schema is not sent back
_REQUEST = "This answer cannot be used: {complaint}. Answer again, with the corrected JSON alone."
_SCHEMA = " It must fit this JSON Schema: {schema}"


def correction(
    sent: bytes,
    reply: Reply | CallFailed,
    outcome: Succeeded | Retry | Snooze | Dead,
    schema: dict[str, Any] | None,
) -> bytes | None:
    """Return the request that sends an answer back with what is wrong with it.

    `sent` is the request that was answered. Returns None if the outcome is no answer that only
    fails to fit the schema.
    """
    if isinstance(outcome, Succeeded) or not outcome.failure.is_of_answer or schema is None:
        return None
    answer = _content(reply)
    fields = orjson.loads(sent)
    messages = fields.get("messages")
    if answer is None or not isinstance(messages, list):
        return None
    request = _REQUEST.format(complaint=outcome.failure.text.rstrip("."))
    schema_text = orjson.dumps(schema).decode()
    if len(schema_text) <= _MAX_CHARS:
        request += _SCHEMA.format(schema=schema_text)
    correcting = [{"role": "assistant", "content": answer}, {"role": "user", "content": request}]
    return body_bytes(fields | {"messages": [*messages, *correcting]})


def _content(reply: Reply | CallFailed) -> str | None:
    """Return the answer's text; None if there is none, or if it is too long to be sent again."""
    if not isinstance(reply, Reply) or len(reply.body) > 2 * _MAX_CHARS:
        return None
    answer = text_of_answer(reply.body, COMPLETION)
    return answer if answer and len(answer) <= _MAX_CHARS else None
