"""Records the attempts of this agent as spans.

An attempt's spans stay in memory until it is settled. Then a failed attempt's spans are always
emitted, and a successful one's only if its task is sampled.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from docllm.agent.handlers.calls.permits import CallEnd
from docllm.agent.handlers.calls.traces import NO_TRACE, AttemptTrace, CallTrace
from docllm.agent.ports import CallFailed, Clock, Reply, Settlement, Verdict
from docllm.agent.ports.outcome import Dead, Moved, Outcome, Retry, Snooze, Spent, Succeeded
from docllm.producer.tracing import names
from docllm.producer.tracing.publications import send_span
from docllm.producer.tracing.spans import Attribute, Span, SpanKind, Spans, inert, never_raising
from docllm.schemas.task.record.envelope import Publication
from docllm.schemas.task.record.trace import (
    SpanId,
    TraceHeaders,
    attempt_span,
    call_span,
    is_sampled,
    settle_span,
    trace_of,
)

MAX_ATTEMPTS = 20_000  # attempts whose spans are held; the oldest is dropped first
MAX_LINKS = 128
MAX_CALLS = 64  # calls of one attempt that are kept; a long document may need thousands
_SETTLE = "settle"
_CANCELLED = "cancelled"
# An outcome that the ledger took as a failure, or not at all.
_FAILED = {Verdict.RETRIED, Verdict.DIED, Verdict.SUPERSEDED, Verdict.GIVEN_UP}


@dataclass(slots=True, kw_only=True, eq=False)
class OpenAttempt:
    """An attempt that has not been settled, with the calls that have ended."""

    span: SpanId
    headers: TraceHeaders
    start_s: float
    clock: Clock
    to_provider: bool
    calls: "list[OpenCall]" = field(default_factory=list)
    left_out: int = 0
    _begun: int = 0

    @property
    def trace_id(self) -> str:
        """The id of the task's trace, as a log shows it."""
        return self.span.trace.hex()

    def call(self, route: str, model: str) -> CallTrace:
        """Begin a call."""
        self._begun += 1
        return OpenCall(self, number=self._begun, route=route, model=model)

    def keep(self, call: "OpenCall") -> None:
        """Keep a call that has ended, if there is room."""
        if len(self.calls) < MAX_CALLS:
            self.calls.append(call)
        else:
            self.left_out += 1

    def earlier(self, *, with_publication: bool = True) -> tuple[SpanId, ...]:
        """Return links to the attempt's record, the previous attempt, and a producer's span."""
        publication, after = self.headers.publication, self.headers.after
        links = (
            publication if with_publication else None,
            None if after is None else SpanId(self.span.trace, after),
            self.headers.link,
        )
        return tuple(link for link in links if link is not None)


class OpenCall:
    """A call under way, or ended.

    Most are forgotten, so that a span is made only of one that is emitted.
    """

    def __init__(self, attempt: OpenAttempt, *, number: int, route: str, model: str) -> None:
        self._attempt = attempt
        self._number = number
        self.traceparent = self._span.traceparent if attempt.to_provider else ""
        self._route = route
        self._model = model
        self._start_s = self._end_s = attempt.clock.utc_s()
        self._status: int | None = None
        self._spent: Spent | None = None
        self._error = ""

    @property
    def _span(self) -> SpanId:
        attempt = self._attempt.span
        return SpanId(attempt.trace, call_span(attempt.span, self._number))

    @never_raising()
    def ended(self, end: CallEnd) -> None:
        """Keep the call with its attempt, without its reply."""
        self._end_s = self._attempt.clock.utc_s()
        self._status = end.reply.status if isinstance(end.reply, Reply) else None
        self._spent = None if end.outcome is None else end.outcome.spent
        self._error = _error_of_call(end)
        self._attempt.keep(self)

    def as_span(self) -> Span:
        """Return the span of the call, which has ended."""
        model = inert(self._model)
        attributes: dict[str, Attribute] = {
            names.GEN_AI_OPERATION: names.GEN_AI_CHAT,
            names.MODEL: model,
            names.ROUTE: inert(self._route),
        }
        if self._status is not None:
            attributes[names.STATUS] = self._status
        if self._spent is not None:
            attributes |= _of_cost(self._spent)
            attributes[names.CALL_ID] = inert(self._spent.call_id)
        return Span(
            self._span,
            f"{names.GEN_AI_CHAT} {model}".rstrip(),
            SpanKind.CLIENT,
            self._start_s,
            self._end_s,
            attributes,
            parent=self._attempt.span.span,
            error=self._error,
        )


@dataclass(kw_only=True, eq=False)
class AttemptTraces:
    """The traces of one agent's attempts.

    `ratio` is the share of tasks whose successful attempts are emitted. With `to_provider`, calls
    carry a `traceparent`.
    """

    spans: Spans
    ledger: str
    group: str
    system: str
    ratio: float
    to_provider: bool
    clock: Clock

    def __post_init__(self) -> None:
        self._open: dict[tuple[int, int], OpenAttempt] = {}

    @never_raising()
    def claimed(self, publications: Iterable[Publication], owner: int, start_s: float) -> None:
        """Begin the attempts at the tasks that a claim got, whose records these were."""
        for publication in publications:
            if len(self._open) >= MAX_ATTEMPTS:
                del self._open[next(iter(self._open))]
            self._open[publication.task_id, owner] = OpenAttempt(
                span=SpanId(
                    trace_of(self.ledger, publication.task_id),
                    attempt_span(publication.task_id, owner),
                ),
                headers=publication.trace,
                start_s=start_s,
                clock=self.clock,
                to_provider=self.to_provider,
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
        end_s = self.clock.utc_s()
        span_ids = []
        for settlement, verdict in zip(settlements, verdicts, strict=True):
            attempt = self._open.pop((settlement.row.task_id, settlement.owner), None)
            if attempt is not None and self._is_kept(attempt, settlement, verdict):
                span_ids.append(attempt.span)
                self._emit(attempt, settlement, verdict, start_s)
        if span_ids:
            self.spans.emit(_settle(span_ids, len(settlements), start_s, end_s))

    def _is_kept(self, attempt: OpenAttempt, settlement: Settlement, verdict: Verdict) -> bool:
        """Return whether the attempt or one before it failed, or its task is sampled."""
        publication = attempt.headers.publication
        return (
            _has_failed(settlement.outcome, verdict)
            or settlement.row.lease_losses > 0
            or is_sampled(attempt.span.trace, self.ratio)
            or (publication is not None and publication.sampled)
        )

    def _emit(
        self, attempt: OpenAttempt, settlement: Settlement, verdict: Verdict, end_s: float
    ) -> None:
        outcome = settlement.outcome
        topic, partition, offset, _ = settlement.origin
        self._emit_publication(attempt, settlement)
        for call in attempt.calls:
            self.spans.emit(call.as_span())
        self.spans.emit(
            Span(
                attempt.span,
                f"{names.PROCESS} {topic}",
                SpanKind.CONSUMER,
                attempt.start_s,
                end_s,
                {
                    names.SYSTEM: self.system,
                    names.OPERATION: names.PROCESS,
                    names.OPERATION_TYPE: names.PROCESS,
                    names.DESTINATION: topic,
                    names.PARTITION: str(partition),
                    names.OFFSET: offset,
                    names.GROUP: inert(self.group),
                    **_of_task(settlement),
                    **_of_outcome(outcome, verdict),
                    **_of_cost(outcome.spent),
                    **({names.CALLS_LEFT_OUT: attempt.left_out} if attempt.left_out else {}),
                },
                attempt.earlier(),
                error=_error_of(outcome, verdict),
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
        self.spans.emit(
            send_span(
                publication,
                topic,
                self.system,
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
    return isinstance(outcome, Retry | Dead) or verdict in _FAILED


def _error_of(outcome: Outcome, verdict: Verdict) -> str:
    """Return the class of the attempt's error; empty if it has none."""
    if verdict in {Verdict.SUPERSEDED, Verdict.GIVEN_UP}:
        return verdict.name
    if isinstance(outcome, Retry | Dead | Snooze | Moved):
        return outcome.failure.error_class
    return verdict.name if verdict in _FAILED else ""


def _error_of_call(end: CallEnd) -> str:
    """Return the class of a call's error; empty if it has none."""
    if end.outcome is None:
        return _CANCELLED if end.reply is None else type(end.reply).__name__
    if isinstance(end.reply, CallFailed):
        return end.reply.error_class
    return "" if isinstance(end.outcome, Succeeded) else end.outcome.failure.error_class


def _of_task(settlement: Settlement) -> dict[str, Attribute]:
    """Return the attributes of an attempt that name its task."""
    row = settlement.row
    return {
        names.TASK_ID: row.task_id,
        names.TASK: inert(row.key_text),
        names.BATCH: inert(row.batch),
        names.TYPE: inert(row.type),
        names.TENANT: inert(row.tenant),
        names.ROUTE: inert(settlement.route),
        names.FENCE: row.fence,
        names.ATTEMPT: row.counted_before,
    }


def _of_outcome(outcome: Outcome, verdict: Verdict) -> dict[str, Attribute]:
    """Return the attributes of an attempt that say how it ended."""
    return {
        names.OUTCOME: type(outcome).__name__.lower(),
        names.VERDICT: verdict.value,
    }


def _of_cost(spent: Spent) -> dict[str, Attribute]:
    """Return the attributes that say what calls have used; amounts of 0 are left out."""
    amounts = {
        names.TOKENS_IN: spent.tokens_in,
        names.TOKENS_OUT: spent.tokens_out,
        names.TOKENS_CACHED: spent.tokens_cached,
        names.COST: spent.cost_micro,
    }
    return {name: amount for name, amount in amounts.items() if amount}
