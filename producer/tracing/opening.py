"""Decides whether this program traces, and loads the libraries only if it does."""

import logging
from collections.abc import Mapping

from docllm.producer.tracing.spans import Spans
from docllm.schemas.codes import Code
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import OtelConfig

log = logging.getLogger(__name__)

INSTALL = "pip install '.[otel]' in the clone of docllm"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HTTP = "http/protobuf"


def open_spans(otel: OtelConfig, environ: Mapping[str, str]) -> Spans | None:
    """Return where spans go; None if nothing is traced.

    Raises ConfigError if `otel.endpoint` is set and the extra is not installed. OpenTelemetry's
    variables are often set for all programs of a cluster, so they alone stop nothing.
    """
    if otel.endpoint is None or _is_disabled(environ):
        return None
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), _HTTP)
    if not otel.named and protocol != _HTTP:
        log.warning(
            "nothing is traced: OTEL_EXPORTER_OTLP_PROTOCOL is not %s, which docllm speaks; "
            "set otel.endpoint to the collector's port for HTTP, usually 4318",
            _HTTP,
            extra={"code": Code.SPANS_DROPPED},
        )
        return None
    try:
        from docllm.producer.tracing.otlp import OtlpSpans  # noqa: PLC0415 - only who traces loads it
    except ImportError:
        if otel.named:
            raise ConfigError(f"otel.endpoint needs the extra otel: {INSTALL}") from None
        log.info("OTEL_EXPORTER_OTLP_ENDPOINT is set; to trace, install the extra: %s", INSTALL)
        return None
    return OtlpSpans(otel)


def _is_disabled(environ: Mapping[str, str]) -> bool:
    return (
        environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        or environ.get("OTEL_TRACES_EXPORTER", "").strip() == "none"
    )
