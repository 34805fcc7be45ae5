"""Names the span of each publication in its record, and emits that span.

The record's value stays as it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from docllm.producer.ports import Publisher, Refusal
from docllm.producer.tracing import names
from docllm.producer.tracing.spans import Span, SpanKind, Spans, never_raising
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.record import header_names
from docllm.schemas.task.record.envelope import Outgoing
from docllm.schemas.task.record.trace import (
    SpanId,
    attempt_span,
    is_sampled,
    publication_span,
    span_of,
    trace_headers,
    trace_of,
)

Headers = list[tuple[str, bytes]]


@dataclass(slots=True, kw_only=True, eq=False)
class PublicationTraces:
    """Records the publications of one ledger's tasks as spans.

    `ratio` is the share of tasks whose publications are recorded even if nothing failed.
    """

    spans: Spans
    ledger: str
    ratio: float
    system: str

    def headers(
        self,
        task_id: int,
        destination: str,
        fence: int,
        order: int,
        *,
        has_failed: bool = False,
        last_owner: int = 0,
        foreign: str = "",
    ) -> Headers:
        """Return the headers of a publication.

        `has_failed` says that an attempt at the task has failed, `last_owner` is the claim of the
        attempt before, 0 for none or an unknown one. `foreign` is the `traceparent` that came with
        the task.
        """
        trace = trace_of(self.ledger, task_id)
        sampled = has_failed or is_sampled(trace, self.ratio)
        span = SpanId(trace, publication_span(task_id, destination, fence, order), sampled)
        headers = [(header_names.TRACEPARENT, span.traceparent.encode())]
        if last_owner:
            headers.append(
                (header_names.TRACE_AFTER, attempt_span(task_id, last_owner).hex().encode())
            )
        if link := span_of(foreign):
            headers.append((header_names.TRACE_LINK, link.traceparent.encode()))
        return headers

    @never_raising()
    def sent(self, records: Iterable[Outgoing], start_s: float, end_s: float) -> None:
        """Emit the spans of records that have arrived; times are UTC."""
        for record in records:
            trace = trace_headers(record.headers)
            if trace.publication is not None and trace.publication.sampled:
                self.spans.emit(self._span(record, start_s, end_s))

    def _span(self, record: Outgoing, start_s: float, end_s: float) -> Span:
        trace, own = trace_headers(record.headers), dict(record.headers)
        if trace.publication is None:
            raise AssertionError("the record names no span")
        after = SpanId(trace.publication.trace, trace.after) if trace.after else None
        return send_span(
            trace.publication,
            record.topic,
            self.system,
            start_s,
            end_s,
            task_id=int(own.get(header_names.TASK, b"0")),
            links=tuple(link for link in (trace.link, after) if link is not None),
        )


def send_span(
    publication: SpanId,
    topic: str,
    system: str,
    start_s: float,
    end_s: float,
    *,
    task_id: int,
    links: tuple[SpanId, ...] = (),
) -> Span:
    """Return the span of a publication."""
    return Span(
        publication,
        f"{names.SEND} {topic}",
        SpanKind.PRODUCER,
        start_s,
        end_s,
        {
            names.SYSTEM: system,
            names.OPERATION: names.SEND,
            names.OPERATION_TYPE: names.SEND,
            names.DESTINATION: topic,
            names.TASK_ID: task_id,
        },
        links,
    )


class TracedPublisher:
    """A publisher that emits the spans of the records that have arrived."""

    def __init__(self, publisher: Publisher, *, traces: PublicationTraces, clock: Clock) -> None:
        self._publisher = publisher
        self._traces = traces
        self._clock = clock
        self.waiting = publisher.waiting
        self.close = publisher.close

    async def publish(self, records: Sequence[Outgoing]) -> list[Refusal | None]:
        """Publish, and emit the spans of the records that have arrived."""
        start_s = self._clock.utc_s()
        refusals = await self._publisher.publish(records)
        arrived = (
            record for record, refusal in zip(records, refusals, strict=True) if refusal is None
        )
        self._traces.sent(arrived, start_s, self._clock.utc_s())
        return refusals
