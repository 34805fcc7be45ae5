"""One attempt at one task, from the claimed delivery to its outcome."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from docllm.agent.execution.attempt_routes import AttemptRoutes
from docllm.agent.execution.lock_requests import ResourceLocks
from docllm.agent.execution.observability.attempt_traces import AttemptTraces
from docllm.agent.execution.output_writer import Outputs
from docllm.agent.execution.plain_chat import plain_call, plain_request
from docllm.agent.execution.start_decisions import AttemptStart
from docllm.agent.handlers import HandlerRun, Handlers
from docllm.agent.handlers.calls.traces import NO_TRACE, AttemptTrace
from docllm.agent.handlers.handler_run import Inherited, MadeCall
from docllm.agent.inflight.delivery import Delivery
from docllm.agent.ports import Clock, Row
from docllm.agent.ports.outcome import (
    Dead,
    Failure,
    HandlerState,
    Outcome,
    Released,
    Spent,
    Succeeded,
    unseen,
)
from docllm.schemas.settings.claim_time import SETTLE_MARGIN_S
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.line.parsing import DEFAULT_TENANT

_SETTLE_S = 5.0  # kept at a claim's end for the settle, after an answer's write


# Returns what the handler of a task kept when it came back the last time.
StateOf = Callable[[int], Awaitable[HandlerState | None]]


async def no_state(_task_id: int) -> None:
    """Know of no task that came back."""


@dataclass(kw_only=True, eq=False)
class AttemptRunner:
    """Runs attempts: those of plain chat tasks by itself, all others through the handlers."""

    handlers: Handlers
    locks: ResourceLocks
    outputs: Outputs
    clock: Clock
    claim_s: float
    state_of: StateOf = no_state
    traces: AttemptTraces | None = None

    async def write(self, delivery: Delivery, row: Row, answer: Succeeded) -> Outcome:
        """Write the answer of a claimed delivery to its output; return how the attempt ends."""
        until_s = delivery.claimed_at_s + self.claim_s - _SETTLE_S
        try:
            return await self.outputs.write(answer, row, owner=delivery.owner, until_s=until_s)
        except asyncio.CancelledError:
            if self.handlers.runs_again(row.type):
                raise
            return unseen("its agent stopped before the answer was written", answer.spent)

    async def run(self, delivery: Delivery, start: AttemptStart, routes: AttemptRoutes) -> Outcome:
        """Run the attempt and return its outcome; `routes` decides about each failed call.

        A cancelled attempt raises CancelledError; `delivery.spent` then says what it has spent, and
        the caller releases the claim.
        """
        row = delivery.row
        if row is None or delivery.value is None:
            return Dead(
                Failure(ErrorClass.NO_INPUT, "the ledger has no input for this task"), Spent()
            )
        now_s = self.clock.now_s()
        left_s = delivery.claimed_at_s + self.claim_s - SETTLE_MARGIN_S - now_s
        if left_s <= 0:
            return Released()
        plan, first = self.handlers.plain_plan(row.type, delivery.route), None
        traces = self.traces
        trace = NO_TRACE if traces is None else traces.of(row.task_id, delivery.owner)
        if plan is not None and not row.suspect and not row.output_uri:
            on_fallback = delivery.route != delivery.plan.route
            request = plain_request(
                delivery.line, len(delivery.value), plan, is_on_fallback=on_fallback
            )
            delivery.line = None  # not kept during the call
            if request is not None:
                made = await plain_call(
                    delivery, row, start, plan, request, trace=trace, now_s=now_s, left_s=left_s
                )
                if not isinstance(made, MadeCall):
                    return made
                first = made
        return await self._run_handler(delivery, row, start, routes, left_s, trace, first)

    async def _run_handler(
        self,
        delivery: Delivery,
        row: Row,
        start: AttemptStart,
        routes: AttemptRoutes,
        left_s: float,
        trace: AttemptTrace,
        first: MadeCall | None,
    ) -> Outcome:
        """Run the handler of the task's type; `first` is a call that was made for it."""
        state = None
        if row.fence and self.handlers.may_come_back(row.type):  # a come-back raises the fence
            asked_s = self.clock.now_s()
            state = await self.state_of(row.task_id)
            left_s -= self.clock.now_s() - asked_s
        locks = self.locks.of(row.task_id, delivery.owner)
        run = HandlerRun(
            first_call=first,
            task_id=row.task_id,
            batch=row.batch,
            value=delivery.value or b"",
            counted_before=row.counted_before,
            max_attempts=row.max_attempts,
            snoozes=delivery.snoozes,
            left_s=left_s,
            route=delivery.route,
            is_on_fallback=delivery.route != delivery.plan.route,
            is_changed=row.changed,
            limit_s=start.limit_s,
            refused_alone=start.refused_alone,
            may_call=lambda: delivery.may_call(self.clock.now_s()),
            note_spent=delivery.note_spent,
            route_after_failure=routes.route_after_failure,
            retry_on_route=routes.retry_on_route,
            call_permits=start.call_permits,
            inherited=Inherited(
                depth=row.depth,
                tenant=row.tenant or DEFAULT_TENANT,
                lane=row.lane,
                routes_allowed=row.routes_allowed,
            ),
            locks=locks,
            output_uri=row.output_uri,
            output_refusal=self.outputs.refusal,
            agents_lost=row.lease_losses,
            losses=row.losses,
            trace=trace,
            state=state,
        )
        try:
            return await self.handlers.run(run)
        finally:
            locks.close()
