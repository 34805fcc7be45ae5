"""An attempt under way, as its spans see it, and its calls."""

from docllm.agent.execution.observability.span_attributes import error_of_call, of_cost
from docllm.agent.handlers.calls.permits import CallEnd
from docllm.agent.handlers.calls.traces import CallTrace
from docllm.agent.ports import Clock, Reply
from docllm.producer.tracing import names
from docllm.producer.tracing.spans import Attribute, Span, SpanKind, inert, never_raising
from docllm.schemas.task.record.trace import SpanId, TraceHeaders, call_span

MAX_CALLS = 64  # calls of one attempt that are kept; a long document may need thousands


class OpenAttempt:
    """An attempt that has not been settled, with the calls that have ended."""

    def __init__(
        self,
        span: SpanId,
        *,
        headers: TraceHeaders,
        start_s: float,
        clock: Clock,
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
        """The id of the task's trace, as a log shows it."""
        return self.span.trace.hex()

    def call(self, route: str, model: str) -> CallTrace:
        """Begin a call."""
        self._begun += 1
        span = SpanId(self.span.trace, call_span(self.span.span, self._begun))
        return OpenCall(
            self,
            span=span,
            route=route,
            model=model,
            clock=self._clock,
            traceparent=self._to_provider,
        )

    def keep(self, call: Span) -> None:
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
    """A call under way."""

    def __init__(
        self,
        attempt: OpenAttempt,
        *,
        span: SpanId,
        route: str,
        model: str,
        clock: Clock,
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
            attributes |= of_cost(outcome.spent)
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
                error=error_of_call(end),
            )
        )
