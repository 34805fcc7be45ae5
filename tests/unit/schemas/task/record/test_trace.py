"""Ids of traces, and what strangers write in place of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.trace import (
    NO_TRACE_HEADERS,
    SpanId,
    attempt_span,
    call_span,
    is_sampled,
    publication_span,
    span_of,
    trace_headers,
    trace_of,
)

GOOD = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_ids_are_the_same_wherever_they_are_made() -> None:
    """Agents of all versions must agree, so that a trace stays whole over an upgrade."""
    assert trace_of("ledger", 7).hex() == "f7afb1fb59f39874da2eb2ff22531ada"
    assert attempt_span(7, 1 << 24).hex() == "9c595af1d4806ee9"


def test_different_things_have_different_ids() -> None:
    """A task has one trace, and its spans are told apart."""
    assert len({trace_of(ledger, task) for ledger in "ab" for task in range(100)}) == 200
    attempt = attempt_span(7, 1)
    spans = [
        *(attempt_span(7, owner) for owner in range(100)),
        *(call_span(attempt, number) for number in range(100)),
        *(publication_span(7, to, fence, 1) for to in ("tasks", "dlq") for fence in range(50)),
        publication_span(7, "tasks", 0, 2),
    ]
    assert len(set(spans)) == len(spans)


def test_a_traceparent_is_read_as_it_was_written() -> None:
    """That of W3C's own example, too."""
    span = span_of(GOOD)
    assert span is not None
    assert (span.traceparent, span.sampled) == (GOOD, True)
    unsampled = SpanId(trace_of("a", 1), attempt_span(1, 1), sampled=False)
    assert span_of(unsampled.traceparent) == unsampled


@pytest.mark.parametrize(
    "text",
    [
        "",
        GOOD.upper(),
        GOOD[:-1],
        f"{GOOD}-more",
        f"{GOOD}\n",
        f"ff{GOOD[2:]}",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        "00-\uff14bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ],
)
def test_what_is_no_traceparent_names_no_span(text: str) -> None:
    """The standard forbids each of them."""
    assert span_of(text) is None


def test_a_later_version_may_say_more() -> None:
    """W3C wants its first four parts to be read."""
    assert span_of(f"01{GOOD[2:]}-more") is not None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [header_names.TRACEPARENT, header_names.TRACE_LINK, header_names.TRACE_AFTER]
            ),
            st.binary(),
        )
    )
)
def test_no_header_breaks_a_record(headers: list[tuple[str, bytes]]) -> None:
    """A stranger's header must not send a task to the quarantine."""
    trace_headers(headers)


def test_headers_of_a_record_without_a_trace_say_nothing() -> None:
    """Nearly all records have none where nothing is traced."""
    assert trace_headers([("docllm-task", b"1"), ("x", None)]) is NO_TRACE_HEADERS


def test_the_share_of_traces_is_the_ratio() -> None:
    """The id alone decides about a trace, so all programs decide alike."""
    traces = [trace_of("ledger", task) for task in range(20_000)]
    assert 0.08 < sum(is_sampled(trace, 0.1) for trace in traces) / len(traces) < 0.12
    assert not any(is_sampled(trace, 0.0) for trace in traces)
    assert all(is_sampled(trace, 1.0) for trace in traces)
