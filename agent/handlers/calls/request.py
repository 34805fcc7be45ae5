"""Builds a task's request: its chat body, and the id under which it is sent. Pure."""

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from docllm.agent.handlers.documents import DocumentError
from docllm.agent.handlers.json_values import json_bytes
from docllm.schemas.clients.structured_output import response_format
from docllm.schemas.settings.config import Structured
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.line.parsing import MAX_PROMPT_CHARS, PLACEHOLDER, TaskLine, prompt_chars

_ID_CHARS = 512
_DIGEST_BYTES = 16
_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*+")  # what `quote` leaves as it is


def chat_body(
    task: TaskLine,
    document: str | None,
    model: str | None,
    structured: Structured = Structured.JSON_SCHEMA,
) -> dict[str, Any]:
    """Return the body of the chat completion.

    `model` is used if the task names none; without either, the body names no model. `structured` is
    the form in which the server takes a schema. Raises DocumentError if the prompt would be too
    long with its document.
    """
    model_name = task.model or model
    model_field = {"model": model_name} if model_name else {}
    if task.body is not None:
        return model_field | task.body | model_field  # the model first, and never null
    return {
        **model_field,
        "messages": [_message(task, document)],
        **({} if task.schema is None else response_format(task.schema, structured)),
        **task.params,
    }


def _message(task: TaskLine, document: str | None) -> dict[str, str]:
    """Return the message; replace the placeholder literally, in one pass over the prompt.

    Prompts hold braces, and documents may hold the placeholder.
    """
    prompt = task.prompt or ""
    if document is None:
        return {"role": "user", "content": prompt}
    if (chars := prompt_chars(prompt, document)) > MAX_PROMPT_CHARS:
        raise DocumentError(
            ErrorClass.DOCUMENT_REFUSED,
            f"the prompt has {chars} characters with its document; "
            f"at most {MAX_PROMPT_CHARS} are sent",
        )
    return {"role": "user", "content": prompt.replace(PLACEHOLDER, document)}


def body_bytes(body: Mapping[str, Any]) -> bytes:
    """Return a body as JSON, copied into a smaller buffer. Raises as `json_bytes` does.

    orjson returns a bytes object that is over-allocated up to eight times; a copy has no spare
    bytes.
    """
    return bytes(memoryview(json_bytes(body, "body")))


def _quoted(text: str) -> str:
    return text if _UNRESERVED.fullmatch(text) else quote(text, safe="")


_quoted_batch = lru_cache(maxsize=1_000)(_quoted)


def request_id(*, batch: str, key: str, attempt: str) -> str:
    """Return `<batch>/<id>#<attempt>`, percent-encoded.

    Above 512 characters the name is cut and ends in a hash of the whole name.
    """
    name = f"{_quoted_batch(batch)}/{_quoted(key)}"
    whole = f"{name}#{attempt}"
    if len(whole) <= _ID_CHARS:
        return whole
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    ending = f"~{digest}#{attempt}"
    return name[: _ID_CHARS - len(ending)] + ending
