"""What records say of traces, which publications are told of, and whether a program traces."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from docllm.producer.ports import Refusal
from docllm.producer.tracing.opening import open_spans
from docllm.producer.tracing.publications import Headers, PublicationTraces, TracedPublisher
from docllm.producer.tracing.spans import Span, inert
from docllm.schemas.errors import ConfigError
from docllm.schemas.settings.config import OtelConfig
from docllm.schemas.task.record.envelope import Outgoing, Publication, decode, encode
from docllm.schemas.task.record.trace import SpanId, attempt_span, trace_of
from tests.support.clock import HandClock
from tests.support.spans import KeptSpans

FOREIGN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"


def traces(spans: KeptSpans, ratio: float = 0.0) -> PublicationTraces:
    return PublicationTraces(spans=spans, ledger="ledger", ratio=ratio, system="kafka")


def record(headers: Headers, task_id: int = 7) -> Outgoing:
    publication = Publication(ledger="ledger", group="g", batch="b", task_id=task_id, fence=3)
    return Outgoing("g.tasks", b"k", b"v", encode(publication) + headers)


def test_a_record_names_its_span_the_attempt_before_and_who_made_the_task() -> None:
    """The agent that reads it needs nothing else."""
    headers = traces(KeptSpans()).headers(
        7, "retry.1s", 3, 11, has_failed=True, last_owner=5, foreign=FOREIGN
    )

    trace = decode(record(headers).headers).trace

    assert trace.publication is not None
    assert trace.publication.trace == trace_of("ledger", 7)
    assert trace.publication.sampled
    assert trace.after == attempt_span(7, 5)
    assert trace.link is not None
    assert trace.link.traceparent == FOREIGN


def test_a_foreign_text_that_is_no_traceparent_is_left_out() -> None:
    """Whoever writes to the inbox writes what he likes."""
    headers = traces(KeptSpans()).headers(7, "tasks", 0, 1, foreign="\x1b[31m")
    assert [name for name, _ in headers] == ["traceparent"]


class HalfPublisher:
    """Refuses every second record."""

    async def publish(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        return [
            None if number % 2 == 0 else Refusal("full", permanent=False)
            for number in range(len(records))
        ]

    def waiting(self) -> int:
        return 3

    async def close(self) -> None:
        pass


def test_only_what_has_arrived_is_told_of() -> None:
    """What was refused is sent again, and told of then."""
    spans = KeptSpans()
    told = traces(spans, ratio=1.0)
    publisher = TracedPublisher(HalfPublisher(), traces=told, clock=HandClock())
    records = [record(told.headers(number, "tasks", 0, 1), number) for number in range(4)]

    answers = asyncio.run(publisher.publish(records))

    assert [answer is None for answer in answers] == [True, False, True, False]
    assert [span.id.trace for span in spans.kept] == [trace_of("ledger", 0), trace_of("ledger", 2)]
    assert publisher.waiting() == 3


def test_a_task_that_has_not_failed_is_told_of_by_its_share() -> None:
    """A task that has failed is told of always."""
    spans = KeptSpans()
    told = traces(spans)
    told.sent([record(told.headers(7, "tasks", 0, 1))], 1.0, 2.0)
    assert spans.kept == []

    told.sent([record(told.headers(7, "retry.1s", 3, 2, has_failed=True, last_owner=9))], 1.0, 2.0)

    (span,) = spans.kept
    assert span.links == (SpanId(trace_of("ledger", 7), attempt_span(7, 9)),)
    assert (span.name, span.start_s, span.end_s) == ("send g.tasks", 1.0, 2.0)
    assert span.attributes["docllm.task.id"] == 7


def test_a_record_without_a_trace_is_not_told_of() -> None:
    """The records of the quarantine belong to no task."""
    spans = KeptSpans()
    traces(spans, ratio=1.0).sent([record([])], 1.0, 2.0)
    assert spans.kept == []


def test_an_error_of_tracing_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Records that have arrived count as arrived; each kind of error is logged once."""

    class PlantedError(Exception):
        pass

    class FailingSpans(KeptSpans):
        def emit(self, _span: Span) -> None:
            raise PlantedError

    told = traces(FailingSpans(), ratio=1.0)
    publisher = TracedPublisher(HalfPublisher(), traces=told, clock=HandClock())
    for _ in range(3):
        answers = asyncio.run(publisher.publish([record(told.headers(7, "tasks", 0, 1))]))
        assert answers == [None]
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_text_from_outside_is_inert() -> None:
    """A terminal or a page that shows a trace obeys nothing in it."""
    assert inert("a\x1b[31m\nb" + "c" * 500) == "a\ufffd[31m\ufffdb" + "c" * (191 - 8)


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
    with pytest.raises(ConfigError, match=r"otel\.endpoint .*pip install '\.\[otel\]'"):
        open_spans(NAMED, {})
    with caplog.at_level(logging.INFO):
        assert open_spans(FOUND, {}) is None
    assert "pip install '.[otel]' in the clone of docllm" in caplog.text
