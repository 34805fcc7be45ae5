"""Sends spans to a collector, in OTLP over HTTP, from a thread of its own.

The program never waits for a collector: while the collector is unreachable, slow or refusing, spans
are dropped and counted. OpenTelemetry's exporter also reads its standard variables, such as
OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_CERTIFICATE.
"""

import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags
from opentelemetry.trace import SpanKind as OtelKind

from docllm.producer.tracing import names
from docllm.producer.tracing.spans import Span
from docllm.schemas.codes import Code
from docllm.schemas.settings.config import OtelConfig
from docllm.schemas.task.record.trace import SpanId
from docllm.schemas.version import VERSION

log = logging.getLogger(__name__)

MAX_WAITING = 4096  # spans that wait; more are dropped
PAGE = 512  # spans in one request
GATHER_S = 1.0  # the longest that a span waits for others
CLOSE_S = 3.0  # the longest that a program's end waits
ANSWER_BYTES = 1 << 16  # no more of a collector's answer is read
LATEST_S = 9e9  # the year 2255, which OTLP can still express
_SCOPE = InstrumentationScope("docllm", VERSION, names.SEMCONV)
_SDK_LOG = "opentelemetry"


class OtlpSpans:
    """The port `Spans` on OTLP. Any thread may emit."""

    def __init__(self, otel: OtelConfig, *, max_waiting: int = MAX_WAITING) -> None:
        self._resource = _resource()
        self._exporter = _exporter(otel)
        self._max_waiting = max_waiting
        self._waiting: deque[Span] = deque()
        self._changed = threading.Condition()
        self._sending: list[Span] = []
        self._closing = False
        self._dropped = 0
        self._failing = False
        self._overflowed = self._told_overflow = False
        self._told = _LastReason()
        logging.getLogger(_SDK_LOG).addHandler(self._told)
        logging.getLogger(_SDK_LOG).propagate = False  # it would repeat itself for each request
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """How many spans were dropped."""
        return self._dropped

    def emit(self, span: Span) -> None:
        """Take a span; drop it if too many wait."""
        with self._changed:
            if self._closing or len(self._waiting) >= self._max_waiting:
                self._dropped += 1
                self._overflowed = self._overflowed or not self._closing
                return
            self._waiting.append(span)
            if len(self._waiting) in {1, PAGE}:
                self._changed.notify()

    def close(self) -> None:
        """Send what waits, for at most CLOSE_S; drop the rest."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_S)
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # ends a wait for another try
        with self._changed:
            unsent = len(self._waiting) + len(self._sending)
            self._waiting.clear()
            self._sending = []
            self._dropped += unsent
        self._tell_overflow()
        if unsent:
            log.warning(
                "%d spans were not sent before the end", unsent, extra={"code": Code.SPANS_DROPPED}
            )

    def _run(self) -> None:
        try:
            while page := self._page():
                self._send(page)
                self._tell_overflow()
        finally:
            logging.getLogger(_SDK_LOG).removeHandler(self._told)

    def _tell_overflow(self) -> None:
        """Tell once that spans come faster than they are sent."""
        if self._overflowed and not self._told_overflow:
            self._told_overflow = True
            log.warning(
                "spans come faster than the collector takes them, and %d were dropped so far; "
                "lower otel.ratio",
                self._dropped,
                extra={"code": Code.SPANS_DROPPED},
            )

    def _page(self) -> list[Span]:
        """Wait for spans and return some; none once there are none and the program ends."""
        with self._changed:
            while not self._waiting and not self._closing:
                self._changed.wait()
            until = time.monotonic() + GATHER_S
            while len(self._waiting) < PAGE and not self._closing:
                left_s = until - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            count = min(PAGE, len(self._waiting))
            self._sending = [self._waiting.popleft() for _ in range(count)]
            return self._sending

    def _send(self, page: Sequence[Span]) -> None:
        try:
            taken = self._exporter.export([self._readable(span) for span in page])
            failed = taken is not SpanExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001 - tracing must end nothing
            failed = True
            self._told.reason = type(error).__name__
        with self._changed:
            # Once the end has counted them as dropped, they are no longer here.
            lost, self._sending = len(self._sending) if failed else 0, []
            self._dropped += lost
        if not failed:
            if self._failing:
                log.info("the collector takes spans again; %d were dropped so far", self._dropped)
            self._failing = False
            return
        if not self._failing:
            self._failing = True
            log.warning(
                "the collector takes no spans (%s): they are dropped until it does; tasks do not "
                "wait for it; see otel.endpoint",
                self._told.reason,
                extra={"code": Code.SPANS_DROPPED},
            )

    def _readable(self, span: Span) -> ReadableSpan:
        parent = None if span.parent is None else SpanId(span.id.trace, span.parent)
        return ReadableSpan(
            span.name,
            context=_context(span.id),
            parent=None if parent is None else _context(parent),
            resource=self._resource,
            attributes=dict(span.attributes)
            | ({names.ERROR_TYPE: span.error} if span.error else {}),
            links=[Link(_context(link)) for link in span.links],
            kind=OtelKind[span.kind.name],
            status=Status(StatusCode.ERROR) if span.error else Status(),
            start_time=_nanoseconds(span.start_s),
            end_time=_nanoseconds(max(span.start_s, span.end_s)),
            instrumentation_scope=_SCOPE,
        )


class _LastReason(logging.Handler):
    """Keeps why the exporter's last request failed: a status, or the kind of an error.

    The text of an error may hold an address with a password.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reason = "it gives no reason"

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the reason of a message that has one."""
        values = record.args if isinstance(record.args, tuple) else ()
        for value in values:
            if isinstance(value, BaseException):
                self.reason = type(value).__name__
            elif isinstance(value, int) and not isinstance(value, bool):
                self.reason = f"HTTP {value}"


def _nanoseconds(utc_s: float) -> int:
    """Return a time in OTLP's form, which holds no other.

    Anybody may have written a record's timestamp, and one bad time would drop its whole page.
    """
    return round(min(max(0.0, utc_s), LATEST_S) * 1e9)


def _context(span: SpanId) -> SpanContext:
    return SpanContext(
        int.from_bytes(span.trace, "big"),
        int.from_bytes(span.span, "big"),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


def _exporter(otel: OtelConfig) -> OTLPSpanExporter:
    session = requests.Session()
    session.max_redirects = 0  # a redirect would take the headers elsewhere
    session.hooks["response"].append(_bound)
    return OTLPSpanExporter(
        endpoint=f"{otel.endpoint.rstrip('/')}/v1/traces" if otel.endpoint and otel.named else None,
        headers={name: value.reveal() for name, value in otel.headers.items()},
        session=session,
    )


def _bound(answer: requests.Response, **_options: object) -> None:
    """Read a bounded part of an answer, and drop it. A collector's answer may be endless."""
    answer.raw.read(ANSWER_BYTES)
    answer.close()  # keeps the connection if that was all


def _resource() -> Resource:
    """Return what all spans say of this program; OpenTelemetry's own variables win."""
    own = Resource(
        {
            "service.name": "docllm",
            "service.version": VERSION,
            "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
        }
    )
    return Resource.create().merge(own).merge(OTELResourceDetector().detect())
