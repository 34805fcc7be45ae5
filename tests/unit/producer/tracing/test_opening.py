"""Whether a program traces, by its settings and by OpenTelemetry's own variables."""

import logging
import sys
from typing import Any

import pytest

from docllm.producer.tracing.opening import open_spans
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import OtelConfig

NAMED = OtelConfig(endpoint="http://127.0.0.1:1", named=True)
FOUND = OtelConfig(endpoint="http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("otel", "environ"),
    [
        (OtelConfig(), {}),
        (NAMED, {"OTEL_SDK_DISABLED": "True"}),
        (NAMED, {"OTEL_TRACES_EXPORTER": "none"}),
        (FOUND, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}),
    ],
)
def test_nothing_is_traced(otel: OtelConfig, environ: dict[str, str]) -> None:
    """Not without a collector, and not if a person says so."""
    assert open_spans(otel, environ) is None


def test_a_collector_is_spoken_to_by_http(caplog: pytest.LogCaptureFixture) -> None:
    """The variable of a cluster may name the other protocol; the setting means this one."""
    spans = open_spans(NAMED, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert spans is not None
    spans.close()
    assert open_spans(FOUND, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}) is None
    assert "http/protobuf" in caplog.text


def test_without_the_extra_only_the_setting_is_an_error(
    monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A variable that a cluster sets for all programs stops none of them."""
    monkeypatch.setitem(sys.modules, "docllm.producer.tracing.otlp", None)
    with pytest.raises(ConfigError, match=r"otel\.endpoint .*pip install 'docllm\[otel\]'"):
        open_spans(NAMED, {})
    with caplog.at_level(logging.INFO):
        assert open_spans(FOUND, {}) is None
    assert "pip install 'docllm[otel]'" in caplog.text
