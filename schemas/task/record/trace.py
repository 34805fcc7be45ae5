"""Derives the ids of traces; all programs compute the same ids without communication.

All attempts of a task, on any agent, before and after a replay, are in one trace. A `traceparent`
(W3C Trace Context) names a span of it.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from docllm.schemas.task.record import header_names

SPAN_BYTES = 8
_TRACE_BYTES = 16
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*+)?")
_SPAN = re.compile(r"[0-9a-f]{16}")
_VERSION_CHARS = 55
_LOW_64_BITS = (1 << 64) - 1
_SAMPLED = 1


@dataclass(frozen=True, slots=True)
class SpanId:
    """A span, by its trace's id and its own; `sampled` says that somebody records it."""

    trace: bytes
    span: bytes
    sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The text that names the span in a header."""
        return f"00-{self.trace.hex()}-{self.span.hex()}-{'01' if self.sampled else '00'}"


def trace_of(ledger: str, task_id: int) -> bytes:
    """Return the id of a task's trace."""
    return _digest(f"{ledger}/{task_id}", _TRACE_BYTES)


def attempt_span(task_id: int, owner: int) -> bytes:
    """Return the id of an attempt's span. No two claims have the same owner."""
    return _digest(f"{task_id}/{owner}", SPAN_BYTES)


def call_span(attempt: bytes, number: int) -> bytes:
    """Return the id of the span of an attempt's call, which are counted from 1."""
    return _digest(f"{attempt.hex()}/call/{number}", SPAN_BYTES)


def publication_span(task_id: int, destination: str, fence: int, order: int) -> bytes:
    """Return the id of the span of a publication; a record that is sent twice has one span."""
    return _digest(f"{task_id}/{destination}/{fence}/{order}", SPAN_BYTES)


def settle_span(attempts: list[bytes]) -> SpanId:
    """Return the span of a transaction that settled these attempts, in a trace of its own."""
    joined = "/".join(span.hex() for span in attempts)
    return SpanId(_digest(joined, _TRACE_BYTES), _digest(f"settle/{joined}", SPAN_BYTES))


def is_sampled(trace: bytes, ratio: float) -> bool:
    """Return whether a trace is one of this share of all, by OpenTelemetry's rule for ids."""
    return int.from_bytes(trace, "big") & _LOW_64_BITS < round(ratio * (1 << 64))


def span_of(traceparent: str) -> SpanId | None:
    """Return the span that a `traceparent` names; None if it names none.

    Anybody may have written it.
    """
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None or traceparent.startswith("ff"):
        return None
    if traceparent.startswith("00") and len(traceparent) != _VERSION_CHARS:
        return None
    trace, span, flags = (bytes.fromhex(part) for part in match.groups())
    if not any(trace) or not any(span):
        return None
    return SpanId(trace, span, bool(flags[0] & _SAMPLED))


@dataclass(frozen=True, slots=True)
class TraceHeaders:
    """What the headers of a record say of traces; None where they say nothing that can be read.

    `publication` is the span that sent the record, `link` the one of a foreign producer that made
    the task, `after` the id of the attempt that came before.
    """

    publication: SpanId | None = None
    link: SpanId | None = None
    after: bytes | None = None


NO_TRACE_HEADERS = TraceHeaders()


def trace_headers(headers: Sequence[tuple[str, bytes | None]]) -> TraceHeaders:
    """Return what a record's headers say of traces; never raises."""
    texts = {
        name: (value or b"").decode("ascii", "replace")
        for name, value in headers
        if name in {header_names.TRACEPARENT, header_names.TRACE_LINK, header_names.TRACE_AFTER}
    }
    if not texts:
        return NO_TRACE_HEADERS
    after = texts.get(header_names.TRACE_AFTER, "")
    return TraceHeaders(
        publication=span_of(texts.get(header_names.TRACEPARENT, "")),
        link=span_of(texts.get(header_names.TRACE_LINK, "")),
        after=bytes.fromhex(after) if _SPAN.fullmatch(after) else None,
    )


def _digest(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=size).digest()
