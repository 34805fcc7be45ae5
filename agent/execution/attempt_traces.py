"""Records the attempts of this agent as spans.

An attempt's spans stay in memory until it is settled. Then a failed attempt's spans are always
emitted, and a successful one's only if its task is sampled.
"""

from collections.abc import Iterable, Sequence

from agent.handlers.traces import NO_TRACE, AttemptTrace, CallTrace
from agent.handlers.turns import CallEnd
from agent.outcome import Dead, Moved, Outcome, Retry, Snooze, Spent, Succeeded
from agent.ports import CallFailed, Clock, Reply, Settlement, Verdict
from producer.tracing import names
from producer.tracing.publications import send_span
from producer.tracing.spans import Attribute, Span, SpanKind, Spans, inert, never_raising
from schemas.task.envelope import Publication
from schemas.task.trace import (
    SpanId,
    TraceHeaders,
    attempt_span,
    call_span,
    is_sampled,
    settle_span,
    trace_of,
)

MOST_ATTEMPTS = 20_000  # attempts whose spans are held; the oldest is dropped first
MOST_CALLS = 64  # of one attempt; a long document may need thousands
MOST_LINKS = 128
CANCELLED = "cancelled"
# An outcome that the ledger took as a failure, or not at all.
_FAILED = {Verdict.RETRIED, Verdict.DIED, Verdict.FENCED, Verdict.GIVEN_UP}
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
        self._open: dict[tuple[int, int], _OpenAttempt] = {}

    @never_raising()
    def claimed(self, publications: Iterable[Publication], owner: int, start_s: float) -> None:
        """Begin the attempts at the tasks that a claim got, whose records these were."""
        for publication in publications:
            if len(self._open) >= MOST_ATTEMPTS:
                del self._open[next(iter(self._open))]
            self._open[publication.task_id, owner] = _OpenAttempt(
                SpanId(
                    trace_of(self._ledger, publication.task_id),
                    attempt_span(publication.task_id, owner),
                ),
                publication.trace,
                start_s,
                self._clock,
                to_provider=self._to_provider,
            )

    def of(self, task_id: int, owner: int) -> AttemptTrace:
        """Return the trace of an attempt, which tells of its calls."""
        attempt = self._open.get((task_id, owner))
        return NO_TRACE if attempt is None else attempt

    @never_raising()
    def settled(
        self, settlements: Sequence[Settlement], verdicts: Sequence[Verdict], start_s: float
    ) -> None:
        """Emit the spans of ended attempts that failed, or whose tasks are sampled."""
        end_s = self._clock.utc_s()
        members = []
        for settlement, verdict in zip(settlements, verdicts, strict=True):
            attempt = self._open.pop((settlement.row.task_id, settlement.owner), None)
            if attempt is not None and self._is_kept(attempt, settlement, verdict):
                members.append(attempt.span)
                self._emit(attempt, settlement, verdict, start_s)
        if members:
            self._spans.emit(_settle(members, len(settlements), start_s, end_s))

    def _is_kept(self, attempt: "_OpenAttempt", settlement: Settlement, verdict: Verdict) -> bool:
        """Return whether the attempt or one before it failed, or its task is sampled."""
        publication = attempt.headers.publication
        return (
            _has_failed(settlement.outcome, verdict)
            or settlement.row.lease_losses > 0
            or is_sampled(attempt.span.trace, self._ratio)
            or (publication is not None and publication.sampled)
        )

    def _emit(
        self, attempt: "_OpenAttempt", settlement: Settlement, verdict: Verdict, end_s: float
    ) -> None:
        publication, outcome = attempt.headers.publication, settlement.outcome
        topic, partition, offset, timestamp_ms = settlement.origin
        if publication is not None and not publication.sampled:
            # The publisher of the record could not know that the attempt would fail, so its span is
            # emitted here.
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
                    **_of_task(settlement),
                    **_of_outcome(outcome, verdict),
                    **_spent(outcome.spent),
                    **({names.CALLS_LEFT_OUT: attempt.left_out} if attempt.left_out else {}),
                },
                attempt.earlier(),
                error=_error(outcome, verdict),
            )
        )


class _OpenAttempt:
    """An attempt that has not been settled, with the calls that have ended."""

    def __init__(
        self,
        span: SpanId,
        headers: TraceHeaders,
        start_s: float,
        clock: Clock,
        *,
        to_provider: bool,
    ) -> None:
        self.span = span
        self.headers = headers
        self.start_s = start_s
        self.calls: list[Span] = []
        self.left_out = 0
        self._clock = clock
        self._to_provider = to_provider
        self._begun = 0

    @property
    def trace_id(self) -> str:
        """Return the id of the task's trace, as a log shows it."""
        return self.span.trace.hex()

    def call(self, route: str, model: str) -> CallTrace:
        """Begin a call."""
        self._begun += 1
        span = SpanId(self.span.trace, call_span(self.span.span, self._begun))
        return _OpenCall(self, span, route, model, self._clock, traceparent=self._to_provider)

    def keep(self, call: Span) -> None:
        """Keep a call that has ended, if there is room."""
        if len(self.calls) < MOST_CALLS:
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


class _OpenCall:
    """A call under way."""

    def __init__(
        self,
        attempt: _OpenAttempt,
        span: SpanId,
        route: str,
        model: str,
        clock: Clock,
        *,
        traceparent: bool,
    ) -> None:
        self.traceparent = span.traceparent if traceparent else ""
        self._attempt = attempt
        self._span = span
        self._route = route
        self._model = model
        self._clock = clock
        self._start_s = clock.utc_s()

    @never_raising()
    def ended(self, end: CallEnd) -> None:
        """Keep the call's span with its attempt."""
        model, outcome = inert(self._model), end.outcome
        attributes: dict[str, Attribute] = {
            names.GEN_AI_OPERATION: names.GEN_AI_CHAT,
            names.MODEL: model,
            names.ROUTE: inert(self._route),
        }
        if isinstance(end.reply, Reply):
            attributes[names.STATUS] = end.reply.status
        if outcome is not None:
            attributes |= _spent(outcome.spent)
            attributes[names.CALL_ID] = inert(outcome.spent.call_id)
        self._attempt.keep(
            Span(
                self._span,
                f"{names.GEN_AI_CHAT} {model}".rstrip(),
                SpanKind.CLIENT,
                self._start_s,
                self._clock.utc_s(),
                attributes,
                parent=self._attempt.span.span,
                error=_call_error(end),
            )
        )


def _settle(members: list[SpanId], tasks: int, start_s: float, end_s: float) -> Span:
    return Span(
        settle_span([member.span for member in members]),
        _SETTLE,
        SpanKind.CLIENT,
        start_s,
        end_s,
        {names.DB_OPERATION: _SETTLE, names.BATCH_SIZE: tasks},
        tuple(members[:MOST_LINKS]),
    )


def _has_failed(outcome: Outcome, verdict: Verdict) -> bool:
    return isinstance(outcome, Retry | Dead) or verdict in _FAILED


def _error(outcome: Outcome, verdict: Verdict) -> str:
    """Return the class of the attempt's error; empty if it has none."""
    if verdict in {Verdict.FENCED, Verdict.GIVEN_UP}:
        return verdict.name
    if isinstance(outcome, Retry | Dead | Snooze | Moved):
        return outcome.failure.error_class
    return verdict.name if verdict in _FAILED else ""


def _call_error(end: CallEnd) -> str:
    if end.outcome is None:
        return CANCELLED if end.reply is None else type(end.reply).__name__
    if isinstance(end.reply, CallFailed):
        return end.reply.error_class
    return "" if isinstance(end.outcome, Succeeded) else end.outcome.failure.error_class


def _of_task(settlement: Settlement) -> dict[str, Attribute]:
    row = settlement.row
    return {
        names.TASK_ID: row.task_id,
        names.TASK: inert(row.key_text),
        names.BATCH: inert(row.batch),
        names.TYPE: inert(row.type),
        names.TENANT: inert(row.tenant),
        names.ROUTE: inert(settlement.route),
        names.FENCE: row.fence,
        names.ATTEMPT: row.attempt,
    }


def _of_outcome(outcome: Outcome, verdict: Verdict) -> dict[str, Attribute]:
    return {
        names.OUTCOME: type(outcome).__name__.lower(),
        names.VERDICT: verdict.value,
    }


def _spent(spent: Spent) -> dict[str, Attribute]:
    amounts = {
        names.TOKENS_IN: spent.tokens_in,
        names.TOKENS_OUT: spent.tokens_out,
        names.TOKENS_CACHED: spent.tokens_cached,
        names.COST: spent.cost_micro,
    }
    return {name: amount for name, amount in amounts.items() if amount}
