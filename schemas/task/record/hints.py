"""What a record's headers hint about its task, so that nobody reads a body before its claim.

A hint chooses the queue and the first permit of a task, and nothing more. After the claim the body
is read, and what it says holds.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from docllm.schemas.task.record import header_names
from docllm.schemas.task.task_types import DOCUMENT, OPENAI
from docllm.schemas.text.untrusted import as_contained

# The fields of lines of which some hint may follow, besides a document's URI.
_FIELDS = frozenset({"type", "model", "route", "params", "body", "custom_id"})
_NAMES = frozenset({
    header_names.TYPE, header_names.MODEL, header_names.ROUTE, header_names.DOCUMENT_BYTES,
    header_names.MOST_OUT,
})  # fmt: skip
_MAX_TEXT_BYTES = 1000
_MAX_NUMBER = 1 << 40  # a size that is larger says nothing
_MAX_DIGITS = 18
_MAX_CHOICES = 128


class Hints(NamedTuple):
    """The type of a task, the model and route that it names, and the size of its call.

    `document_bytes` is None unless the line names its document by URI, and 0 if it does not say how
    large that is. `most_out` is how many tokens the answer may have, None if the line does not say.
    """

    task_type: str = DOCUMENT
    model: str = ""
    route: str = ""
    document_bytes: int | None = None
    most_out: int | None = None


PLAIN = Hints()  # of a task that names nothing: its record has no header for it


def hints_of(line: Mapping[str, Any]) -> Hints:
    """Return the hints of a task line in either format, whose fields may have any type."""
    source = line.get("input")
    if type(source) is not dict:
        source = {}
    if _FIELDS.isdisjoint(line) and "uri" not in source:
        return PLAIN
    if "body" in line or "custom_id" in line:
        body = _table(line.get("body"))
        return Hints(OPENAI, _text(body.get("model")), "", None, most_out(body))
    return Hints(
        _text(line.get("type")) or DOCUMENT,
        _text(line.get("model")),
        _text(line.get("route")),
        _size(source.get("size")) if "uri" in source else None,
        most_out(_table(line.get("params"))),
    )


def hints_of_body(value: bytes) -> Hints:
    """Return the hints of a task's body; those of a plain task if it cannot be read."""
    line = read_body(value)
    return PLAIN if line is None else hints_of(line)


def read_body(value: bytes) -> dict[str, Any] | None:
    """Return the line in a task's body, without its checks; None if it cannot be read.

    It was checked when it was accepted.
    """
    try:
        line = orjson.loads(value)
    except BaseException as error:  # noqa: BLE001 - who needs the line says what is wrong with it
        as_contained(error)
        return None
    return line if isinstance(line, dict) else None


def most_out(params: Mapping[str, Any]) -> int | None:
    """Return how many tokens the answers to a request may have, None if it does not say."""
    named = params.get("max_completion_tokens")
    if named is None:
        named = params.get("max_tokens")
    if isinstance(named, bool) or not isinstance(named, int) or named < 1:
        return None
    choices = params.get("n")
    return named * (choices if isinstance(choices, int) and 1 < choices <= _MAX_CHOICES else 1)


def encode_hints(hints: Hints) -> list[tuple[str, bytes]]:
    """Return the headers of hints that a plain task does not have.

    A text that is too long for a header is left out: the body says it after the claim.
    """
    texts = {
        header_names.TYPE: "" if hints.task_type == DOCUMENT else hints.task_type,
        header_names.MODEL: hints.model,
        header_names.ROUTE: hints.route,
        header_names.DOCUMENT_BYTES: _number_text(hints.document_bytes),
        header_names.MOST_OUT: _number_text(hints.most_out),
    }
    encoded = {name: text.encode("utf-8", "replace") for name, text in texts.items() if text}
    return [(name, value) for name, value in encoded.items() if len(value) <= _MAX_TEXT_BYTES]


def decode_hints(headers: Mapping[str, bytes]) -> Hints:
    """Return the hints in headers. Nonsense in one of them is no reason to reject a record."""
    if _NAMES.isdisjoint(headers):
        return PLAIN
    return Hints(
        _decoded(headers, header_names.TYPE) or DOCUMENT,
        _decoded(headers, header_names.MODEL),
        _decoded(headers, header_names.ROUTE),
        _decoded_number(headers, header_names.DOCUMENT_BYTES),
        _decoded_number(headers, header_names.MOST_OUT) or None,
    )


def _decoded(headers: Mapping[str, bytes], name: str) -> str:
    return headers.get(name, b"")[:_MAX_TEXT_BYTES].decode("utf-8", "replace")


def _decoded_number(headers: Mapping[str, bytes], name: str) -> int | None:
    value = headers.get(name)
    if value is None:
        return None
    return _size(int(value)) if value.isdigit() and len(value) <= _MAX_DIGITS else 0


def _number_text(number: int | None) -> str:
    return "" if number is None else str(number)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _size(value: Any) -> int:
    """Return a size within its bound; any other value says nothing."""
    return min(value, _MAX_NUMBER) if isinstance(value, int) and value > 0 else 0
