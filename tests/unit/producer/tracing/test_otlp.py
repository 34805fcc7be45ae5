"""The sending of spans: what a collector gets, and that nobody waits for one."""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from docllm.producer.tracing import otlp
from docllm.producer.tracing.otlp import OtlpSpans
from docllm.producer.tracing.spans import Span, SpanKind
from docllm.schemas.settings.config import OtelConfig, Secret
from docllm.schemas.task.record.trace import SpanId
from tests.servers.collector import Collector, collecting

TRACE = b"t" * 16
SPAN = Span(
    id=SpanId(TRACE, b"s" * 8),
    name="chat m",
    kind=SpanKind.CLIENT,
    start_s=10.0,
    end_s=12.5,
    attributes={"docllm.batch": "b", "http.response.status_code": 500},
    links=(SpanId(b"u" * 16, b"l" * 8),),
    parent=b"p" * 8,
    error="SERVER",
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no span wait for others for long."""
    monkeypatch.setattr(otlp, "GATHER_S", 0.02)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


def sender(collector: Collector, **headers: str) -> OtlpSpans:
    secrets = {name: Secret(value) for name, value in headers.items()}
    return OtlpSpans(OtelConfig(endpoint=f"{collector.url}/", named=True, headers=secrets))


def test_a_span_arrives_as_it_is(collector: Collector) -> None:
    """With ids of our own, times, links, and the error's class."""
    spans = sender(collector, key="k1")
    spans.emit(SPAN)
    spans.close()

    (seen,) = collector.spans()
    assert (seen.trace, seen.id, seen.parent) == (TRACE.hex(), "73" * 8, "70" * 8)
    assert (seen.name, seen.start_s, seen.end_s) == ("chat m", 10.0, 12.5)
    assert seen.links == (("75" * 16, "6c" * 8),)
    assert (seen.error, seen.is_error) == ("SERVER", True)
    assert seen.attributes["http.response.status_code"] == 500
    assert seen.service == "docllm"
    assert collector.requests[0][0]["key"] == "k1"
    assert spans.dropped == 0


@pytest.mark.parametrize("at_s", [-0.001, 9.3e15, float("nan")])
def test_a_time_that_cannot_be_drops_no_other_span(collector: Collector, at_s: float) -> None:
    """Whoever writes to a topic chooses the times of records."""
    spans = sender(collector)
    spans.emit(replace(SPAN, start_s=at_s, end_s=at_s))
    spans.emit(SPAN)
    spans.close()
    assert spans.dropped == 0
    assert len(collector.spans()) == 2


def test_an_answer_without_end_is_not_read(collector: Collector) -> None:
    """Such an answer would fill the agent's memory. The spans were taken all the same."""
    collector.mebibytes = 64
    spans = sender(collector)
    spans.emit(SPAN)
    spans.close()
    assert (len(collector.spans()), spans.dropped) == (1, 0)
    assert collector.taken_mebibytes < collector.mebibytes


def test_the_end_leaves_nothing_behind(collector: Collector) -> None:
    """A program may open its servers more than once."""
    before = list(logging.getLogger("opentelemetry").handlers)
    sender(collector).close()
    assert logging.getLogger("opentelemetry").handlers == before


def test_a_hanging_collector_holds_nobody_up(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spans beyond the bound are dropped; the end waits for a few seconds only."""
    monkeypatch.setattr(otlp, "CLOSE_S", 0.5)
    collector.delay_s = 4.0
    spans = sender(collector)
    for _ in range(2 * otlp.MAX_WAITING):
        spans.emit(SPAN)
    assert otlp.MAX_WAITING - otlp.PAGE <= spans.dropped <= otlp.MAX_WAITING

    began_s = time.monotonic()
    spans.close()

    assert time.monotonic() - began_s < 10
    assert spans.dropped == 2 * otlp.MAX_WAITING
    spans.emit(SPAN)  # after the end
    spans._thread.join(30)
    assert caplog.text.count("lower otel.ratio") == 1


@pytest.mark.parametrize("status", [400, 404, 500, 302])
def test_a_refusal_is_told_once_with_its_reason(
    collector: Collector, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """The spans of the request are lost, and counted; so is the end of it."""
    collector.status = status
    spans = sender(collector)
    with caplog.at_level(logging.INFO):
        for number in range(1, 4):
            spans.emit(SPAN)
            _wait(lambda number=number: spans.dropped == number)
        collector.status = 200
        spans.emit(SPAN)
        _wait(lambda: bool(collector.spans()))
        spans.close()
    ours = (record for record in caplog.records if record.name == otlp.__name__)
    said = [record.getMessage() for record in ours]
    assert [text.partition(" spans ")[0] for text in said] == [
        "the collector takes no",
        "the collector takes",
    ]
    assert ("TooManyRedirects" if status == 302 else f"HTTP {status}") in said[0]
    assert (spans.dropped, len(collector.requests)) == (3, 4)


def test_a_collector_that_is_away_is_named_by_the_kind_of_error(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The text of the error could hold a password of the address."""
    monkeypatch.setattr(otlp, "CLOSE_S", 0.5)
    spans = OtlpSpans(OtelConfig(endpoint="http://user:hunter2@127.0.0.1:1/x", named=True))
    spans.emit(SPAN)
    _wait(lambda: "ConnectionError" in spans._told.reason)  # the sender has tried once
    spans.close()
    assert spans.dropped == 1
    _wait(lambda: "ConnectionError" in caplog.text)
    ours = (record for record in caplog.records if record.name == otlp.__name__)
    assert not any("hunter2" in record.getMessage() for record in ours)


def _wait(true: object) -> None:
    until = time.monotonic() + 30
    while not true():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.02)
