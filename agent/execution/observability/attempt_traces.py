"""Records the attempts of this agent as spans.

An attempt's spans stay in memory until it is settled. Then a failed attempt's spans are always
emitted, and a successful one's only if its task is sampled.
"""

from collections.abc import Iterable, Sequence

from docllm.agent.execution.observability.open_attempt import OpenAttempt
from docllm.agent.execution.observability.span_attributes import (
    FAILED,
    error_of,
    of_cost,
    of_outcome,
    of_task,
)
from docllm.agent.handlers.calls.traces import NO_TRACE, AttemptTrace
from docllm.agent.ports import Clock, Settlement, Verdict
from docllm.agent.ports.outcome import Dead, Outcome, Retry
from docllm.producer.tracing import names
from docllm.producer.tracing.publications import send_span
from docllm.producer.tracing.spans import Span, SpanKind, Spans, inert, never_raising
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.record.trace import (
    SpanId,
    attempt_span,
    is_sampled,
    settle_span,
    trace_of,
)

MAX_ATTEMPTS = 20_000  # attempts whose spans are held; the oldest is dropped first
MAX_LINKS = 128
_SETTLE = "settle"


class AttemptTraces:
    """The traces of one agent's attempts.

    `ratio` is the share of tasks whose successful attempts are emitted. With `to_provider`, calls
    carry a `traceparent`.
    """

    def __init__(
        self,
        *,
        spans: Spans,
        ledger: str,
        group: str,
        system: str,
        ratio: float,
        to_provider: bool,
        clock: Clock,
    ) -> None:
        self._spans = spans
        self._ledger = ledger
        self._group = group
        self._system = system
        self._ratio = ratio
        self._to_provider = to_provider
        self._clock = clock
        self._open: dict[tuple[int, int], OpenAttempt] = {}

    @never_raising()
    def claimed(self, publications: Iterable[Publication], owner: int, start_s: float) -> None:
        """Begin the attempts at the tasks that a claim got, whose records these were."""
        for publication in publications:
            if len(self._open) >= MAX_ATTEMPTS:
                del self._open[next(iter(self._open))]
            self._open[publication.task_id, owner] = OpenAttempt(
                SpanId(
                    trace_of(self._ledger, publication.task_id),
                    attempt_span(publication.task_id, owner),
                ),
                headers=publication.trace,
                start_s=start_s,
                clock=self._clock,
                to_provider=self._to_provider,
            )

    def of(self, task_id: int, owner: int) -> AttemptTrace:
        """Return the trace of an attempt, which emits the spans of its calls."""
        attempt = self._open.get((task_id, owner))
        return NO_TRACE if attempt is None else attempt

    @never_raising()
    def settled(
        self, settlements: Sequence[Settlement], verdicts: Sequence[Verdict], start_s: float
    ) -> None:
        """Emit the spans of ended attempts that failed, or whose tasks are sampled."""
        end_s = self._clock.utc_s()
        span_ids = []
        for settlement, verdict in zip(settlements, verdicts, strict=True):
            attempt = self._open.pop((settlement.row.task_id, settlement.owner), None)
            if attempt is not None and self._is_kept(attempt, settlement, verdict):
                span_ids.append(attempt.span)
                self._emit(attempt, settlement, verdict, start_s)
        if span_ids:
            self._spans.emit(_settle(span_ids, len(settlements), start_s, end_s))

    def _is_kept(self, attempt: OpenAttempt, settlement: Settlement, verdict: Verdict) -> bool:
        """Return whether the attempt or one before it failed, or its task is sampled."""
        publication = attempt.headers.publication
        return (
            _has_failed(settlement.outcome, verdict)
            or settlement.row.lease_losses > 0
            or is_sampled(attempt.span.trace, self._ratio)
            or (publication is not None and publication.sampled)
        )

    def _emit(
        self, attempt: OpenAttempt, settlement: Settlement, verdict: Verdict, end_s: float
    ) -> None:
        outcome = settlement.outcome
        topic, partition, offset, _ = settlement.origin
        self._emit_publication(attempt, settlement)
        for call in attempt.calls:
            self._spans.emit(call)
        self._spans.emit(
            Span(
                attempt.span,
                f"{names.PROCESS} {topic}",
                SpanKind.CONSUMER,
                attempt.start_s,
                end_s,
                {
                    names.SYSTEM: self._system,
                    names.OPERATION: names.PROCESS,
                    names.OPERATION_TYPE: names.PROCESS,
                    names.DESTINATION: topic,
                    names.PARTITION: str(partition),
                    names.OFFSET: offset,
                    names.GROUP: inert(self._group),
                    **of_task(settlement),
                    **of_outcome(outcome, verdict),
                    **of_cost(outcome.spent),
                    **({names.CALLS_LEFT_OUT: attempt.left_out} if attempt.left_out else {}),
                },
                attempt.earlier(),
                error=error_of(outcome, verdict),
            )
        )

    def _emit_publication(self, attempt: OpenAttempt, settlement: Settlement) -> None:
        """Emit the span of the attempt's record, unless its publisher has emitted it.

        The publisher could not know that the attempt would fail.
        """
        publication = attempt.headers.publication
        if publication is None or publication.sampled:
            return
        topic, _, _, timestamp_ms = settlement.origin
        sent_s = timestamp_ms / 1000
        self._spans.emit(
            send_span(
                publication,
                topic,
                self._system,
                sent_s,
                sent_s,
                task_id=settlement.row.task_id,
                links=attempt.earlier(with_publication=False),
            )
        )


def _settle(span_ids: list[SpanId], tasks: int, start_s: float, end_s: float) -> Span:
    return Span(
        settle_span([span_id.span for span_id in span_ids]),
        _SETTLE,
        SpanKind.CLIENT,
        start_s,
        end_s,
        {names.DB_OPERATION: _SETTLE, names.BATCH_SIZE: tasks},
        tuple(span_ids[:MAX_LINKS]),
    )


def _has_failed(outcome: Outcome, verdict: Verdict) -> bool:
    return isinstance(outcome, Retry | Dead) or verdict in FAILED
