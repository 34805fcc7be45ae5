"""The messages between an agent and a handler's process: a JSON object and raw bytes.

Nothing of a process is unpickled. Each message has a head with the lengths of its two parts.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

MESSAGE_HEAD = struct.Struct(">II")
MAX_BYTES = 256 << 20  # of one message: in JSON, a document of 32 MiB may take six times as much


@dataclass(frozen=True, slots=True)
class Message:
    """A message: `kind` and `fields` go as JSON, `data` as it is."""

    kind: str
    fields: Mapping[str, Any]
    data: bytes = b""


class MessageError(Exception):
    """The bytes that arrived are not a message."""


def encoded(message: Message) -> bytes:
    """Return a message as bytes.

    Raises TypeError for a field that JSON cannot hold, and MessageError for one that is too large.
    """
    body = orjson.dumps({"kind": message.kind, "fields": dict(message.fields)})
    _require_size(len(body), len(message.data))
    return MESSAGE_HEAD.pack(len(body), len(message.data)) + body + message.data


def sizes(head: bytes) -> tuple[int, int]:
    """Return the sizes of the two parts that follow a head. Raises MessageError."""
    body, data = MESSAGE_HEAD.unpack(head)
    _require_size(body, data)
    return body, data


def decoded(body: bytes, data: bytes) -> Message:
    """Return the message of two parts. Raises MessageError."""
    try:
        read = orjson.loads(body)
        kind, fields = read["kind"], read["fields"]
    except (orjson.JSONDecodeError, TypeError, KeyError):
        raise MessageError("a message is not valid JSON") from None
    if not isinstance(kind, str) or not isinstance(fields, dict):
        raise MessageError("a message has no kind or no fields")
    return Message(kind, fields, data)


def _require_size(body: int, data: int) -> None:
    if body + data > MAX_BYTES:
        raise MessageError(f"a message has more than {MAX_BYTES >> 20} MiB")
