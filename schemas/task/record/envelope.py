"""The record of a task: the value is the task and never changes.

Its headers describe one publication. Numbers from a header are never trusted. This module reads
them within bounds, and the claim compares them with the ledger.
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.hints import PLAIN, Hints, decode_hints, encode_hints
from docllm.schemas.task.record.trace import (
    NO_TRACE_HEADERS,
    TraceHeaders,
    trace_headers,
)

ENVELOPE_VERSION = "1"
MAX_TASK_BYTES = 3 << 20
MAX_KEY_BYTES = 191

RawHeaders = Sequence[tuple[str, bytes | None]]
_MAX_TENANT_BYTES = 64
_MAX_DIGITS = 18
# Hashing releases the interpreter's lock from 2,048 bytes on. For a small task that costs far more
# than it gives: each time, another thread may keep the lock for 5 ms.
_LOCKED_BYTES = 2047
_SMALL_BYTES = 64 << 10
_HEADER_BYTES = 200  # memory that Python needs for a header besides its name and value


def record_bytes(key: bytes | None, value: bytes | None, headers: RawHeaders) -> int:
    """Return approximately how much memory a record takes.

    A million small headers take far more memory than their text.
    """
    header_bytes = sum(_HEADER_BYTES + len(name) + len(text or b"") for name, text in headers)
    return len(key or b"") + len(value or b"") + header_bytes


@dataclass(slots=True)
class Outgoing:
    """One record to publish.

    The key decides the partition, unless `salt` is set: then key and salt do. So each salt of the
    same key takes a partition of its own.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    salt: int = 0


@dataclass(frozen=True, slots=True)
class Publication:
    """The facts that a record's headers state about one publication of a task.

    `tenant` is empty for the default one. `trace` is only read: who traces adds its headers.
    """

    ledger: str
    group: str
    batch: str
    task_id: int
    fence: int
    counted_before: int = 0
    due_ms: int = 0
    origin: str = ""
    error_class: str = ""
    error: str = ""
    tenant: str = ""
    hints: Hints = PLAIN
    trace: TraceHeaders = NO_TRACE_HEADERS


class NotOursError(ValueError):
    """The headers are not those of a docllm publication; the text names the header at fault."""


def digest(key: bytes, value: bytes) -> bytes:
    """Return a digest of 16 bytes for a task's key and value."""
    content = b"".join((len(key).to_bytes(4, "big"), key, value))
    if len(content) > _SMALL_BYTES:
        return hashlib.blake2b(content, digest_size=16).digest()
    hasher = hashlib.blake2b(content[:_LOCKED_BYTES], digest_size=16)
    for start in range(_LOCKED_BYTES, len(content), _LOCKED_BYTES):
        hasher.update(content[start : start + _LOCKED_BYTES])
    return hasher.digest()


def text(value: str, limit: int) -> bytes:
    """Return header text: UTF-8, one line, cut at `limit` bytes without splitting a character."""
    flat = " ".join(value.split()).encode("utf-8", "replace")[:limit]
    return flat.decode("utf-8", "ignore").encode()


def encode(publication: Publication) -> list[tuple[str, bytes]]:
    """Return the headers of a publication as text; leave out empty ones."""
    headers = [
        (header_names.VERSION, ENVELOPE_VERSION.encode()),
        (header_names.LEDGER, publication.ledger.encode()),
        (header_names.GROUP, publication.group.encode()),
        # Not normalized: batch names that differ in the number of blanks are different batches.
        (header_names.BATCH, publication.batch.encode()),
        (header_names.TASK, b"%d" % publication.task_id),
        (header_names.FENCE, b"%d" % publication.fence),
        (header_names.ATTEMPT, b"%d" % publication.counted_before),
        (header_names.DUE_MS, b"%d" % publication.due_ms),
        (header_names.ORIGIN, text(publication.origin, 400)),
        (header_names.ERROR_CLASS, text(publication.error_class, 64)),
        (header_names.ERROR, text(publication.error, 1000)),
        (header_names.TENANT, text(publication.tenant, _MAX_TENANT_BYTES)),
        *encode_hints(publication.hints),
    ]
    return [(name, value) for name, value in headers if value]


def encode_each(
    first: Publication, tasks: Iterable[tuple[int, int, str, Hints]]
) -> Iterator[list[tuple[str, bytes]]]:
    """Yield the headers of publications that differ only in id, fence, tenant and hints."""
    headers = encode(first)
    position = [name for name, _ in headers].index(header_names.TASK)
    for task_id, fence, tenant, hints in tasks:
        task_headers = [
            *headers[:position],
            (header_names.TASK, b"%d" % task_id),
            (header_names.FENCE, b"%d" % fence),
            *headers[position + 2 :],
        ]
        if tenant:
            task_headers.append((header_names.TENANT, text(tenant, _MAX_TENANT_BYTES)))
        if hints is not PLAIN:
            task_headers += encode_hints(hints)
        yield task_headers


def decode(headers: RawHeaders | None) -> Publication:
    """Return the publication that the headers describe.

    Words that many records share are interned, because thousands of publications wait in memory.
    Raises NotOursError if a header that every publication has is missing, doubled or out of bounds.
    """
    own = _own_headers(headers or ())
    version = _required(own, header_names.VERSION)
    if version != ENVELOPE_VERSION.encode():
        raise NotOursError(
            f"{header_names.VERSION} is {version[:20]!r}, this version reads {ENVELOPE_VERSION}"
        )
    return Publication(
        ledger=sys.intern(_word(own, header_names.LEDGER, 32)),
        group=sys.intern(_word(own, header_names.GROUP, 100)),
        batch=sys.intern(own.get(header_names.BATCH, b"")[:255].decode("utf-8", "replace")),
        task_id=_number(own, header_names.TASK),
        fence=_number(own, header_names.FENCE),
        counted_before=_number(own, header_names.ATTEMPT, 0),
        due_ms=_number(own, header_names.DUE_MS, 0),
        origin=own.get(header_names.ORIGIN, b"")[:400].decode("utf-8", "replace"),
        tenant=own.get(header_names.TENANT, b"")[:_MAX_TENANT_BYTES].decode("utf-8", "replace"),
        hints=decode_hints(own),
        trace=trace_headers(list(own.items()))
        if header_names.TRACEPARENT in own
        else NO_TRACE_HEADERS,
    )


def is_letter(headers: RawHeaders) -> bool:
    """Return whether a record's headers are those of a task's dead letter."""
    return {header_names.TASK, header_names.DISPOSITION} <= {name for name, _ in headers}


def _own_headers(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, bytes]:
    own: dict[str, bytes] = {}
    for name, value in headers:
        if name == header_names.BAD_NAMES:
            raise NotOursError("the name of a header is not UTF-8")
        if name.startswith(header_names.OWN_PREFIX):
            if name in own:
                raise NotOursError(f"header {name[:40]} occurs twice")
            own[name] = value or b""
        elif name == header_names.TRACEPARENT:
            own[name] = value or b""
    return own


def _required(own: dict[str, bytes], name: str) -> bytes:
    if name not in own:
        raise NotOursError(f"header {name} is missing")
    return own[name]


def _word(own: dict[str, bytes], name: str, limit: int) -> str:
    value = _required(own, name)
    if len(value) > limit or not value.isascii() or not (word := value.decode()).isprintable():
        raise NotOursError(f"header {name} is too long, not ASCII, or holds control characters")
    return word


def _number(own: dict[str, bytes], name: str, default: int | None = None) -> int:
    if default is not None and name not in own:
        return default
    value = _required(own, name)
    if not value.isdigit() or len(value) > _MAX_DIGITS:
        raise NotOursError(f"header {name} is {value[:20]!r}, not a number")
    return int(value)
