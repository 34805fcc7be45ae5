"""Emits the spans of attempts whose agent was lost.

The agent that resets the tasks can emit them, because span ids are derived from task and claim.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from docllm.agent.ledger.recovery.reaping import LostClaim
from docllm.producer.tracing import names
from docllm.producer.tracing.spans import Span, SpanKind, Spans, inert, never_raising
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.record.trace import SpanId, attempt_span, trace_of


@dataclass(slots=True, kw_only=True, eq=False)
class LostTraces:
    """Emits the spans of attempts whose agent can no longer emit them."""

    spans: Spans
    ledger: str
    group: str
    clock: Clock

    @never_raising()
    def tell(self, claims: Sequence[LostClaim]) -> None:
        """Tell of the attempts under these claims.

        If the lost agent is still alive and settles late, it emits the same span a second time.
        """
        end_s = self.clock.utc_s()
        for claim in claims:
            self.spans.emit(
                Span(
                    SpanId(
                        trace_of(self.ledger, claim.task_id),
                        attempt_span(claim.task_id, claim.owner),
                    ),
                    names.PROCESS,
                    SpanKind.CONSUMER,
                    min(claim.claimed_utc_s, end_s),
                    end_s,
                    {
                        names.OPERATION: names.PROCESS,
                        names.OPERATION_TYPE: names.PROCESS,
                        names.GROUP: inert(self.group),
                        names.TASK_ID: claim.task_id,
                        names.TYPE: inert(claim.type),
                        names.FENCE: claim.fence,
                        names.ATTEMPT: claim.counted_before,
                        names.OUTCOME: "lost",
                    },
                    error=ErrorClass.AGENT_LOST,
                )
            )
