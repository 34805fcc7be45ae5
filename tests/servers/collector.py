"""A collector of traces in the test's own process.

It takes OTLP over HTTP and decodes it by OpenTelemetry's own messages.
"""

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATH = "/v1/traces"


@dataclass(frozen=True)
class SeenSpan:
    """A span as a collector gets it; ids are hexadecimal."""

    trace: str
    id: str
    parent: str
    name: str
    kind: int
    start_s: float
    end_s: float
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    is_error: bool
    service: str

    @property
    def error(self) -> str:
        """Return the class of its error."""
        return str(self.attributes.get("error.type", ""))


class Collector:
    """Takes spans. It answers with `status`, after `delay_s`, and with so many `mebibytes`."""

    def __init__(self) -> None:
        self.status = 200
        self.delay_s = 0.0
        self.mebibytes = self.taken_mebibytes = 0
        self.requests: deque[tuple[dict[str, str], bytes]] = deque(maxlen=1000)  # the newest
        self._spans: list[SeenSpan] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Return what `otel.endpoint` is to be."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def spans(self, name: str = "") -> list[SeenSpan]:
        """Return the spans so far whose names begin so, the earliest first."""
        return sorted(
            (span for span in self._spans if span.name.startswith(name)),
            key=lambda span: (span.start_s, span.end_s),
        )

    def close(self) -> None:
        """Stop to listen."""
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests.append((dict(self.headers), body))
                time.sleep(collector.delay_s)
                status = collector.status if self.path == PATH else 404
                if status == 200:
                    collector._spans += _decoded(body)
                self.send_response(status)
                self.send_header("Content-Length", str(collector.mebibytes << 20))
                if 300 <= status < 400:
                    self.send_header("Location", f"{collector.url}{PATH}")
                self.end_headers()
                with suppress(OSError):  # the reader has had enough
                    for _ in range(collector.mebibytes):
                        self.wfile.write(bytes(1 << 20))
                        collector.taken_mebibytes += 1

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        return Handler


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector."""
    collector = Collector()
    try:
        yield collector
    finally:
        collector.close()


def _decoded(body: bytes) -> Iterator[SeenSpan]:
    for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = _attributes(of_resource.resource.attributes).get("service.name", "")
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield SeenSpan(
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.name,
                    span.kind,
                    span.start_time_unix_nano / 1e9,
                    span.end_time_unix_nano / 1e9,
                    _attributes(span.attributes),
                    tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    span.status.code == span.status.STATUS_CODE_ERROR,
                    service,
                )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
