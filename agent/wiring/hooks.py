"""Builds the part that runs hooks."""

from docllm.agent.execution.quota_gate import QuotaGate
from docllm.agent.handlers.calls.permits import CallPermits
from docllm.agent.hooks.bounds import HookPermits
from docllm.agent.hooks.functions import Hooks
from docllm.agent.hooks.runner import HookRunner
from docllm.agent.ledger.hook_runs import HookRun
from docllm.agent.quota.estimate import CallSize
from docllm.agent.routes import RoutePlan, Router
from docllm.agent.routes.names import preview
from docllm.agent.wiring.record_path import SharedParts
from docllm.producer.app import Parts
from docllm.schemas.objects.write_once import WriteOnceStore


def make_hook_runner(
    parts: Parts,
    *,
    shared: SharedParts,
    hooks: Hooks,
    quotas: QuotaGate,
    routes: Router,
    outputs: WriteOnceStore,
) -> HookRunner:
    """Build the runner of the hooks that this agent's settings name."""

    def plan_of(value: bytes, run: HookRun) -> RoutePlan:
        plan = preview(value, routes.naming).plan.within_batch(run.routes_allowed)
        following = routes.fallbacks(plan.first, parts.clock.now_s(), plan)
        return plan.within(following[:1]) if following else plan

    def permits_of(value: bytes, plan: RoutePlan, run: HookRun) -> CallPermits:
        size = CallSize(task_type=run.type, input_bytes=len(value))
        return HookPermits(
            call_permits=quotas.permits(plan.first, run.tenant, size),
            closed=lambda: bool(plan.refusal) or routes.closed(plan.first, parts.clock.now_s()),
        )

    return HookRunner(
        hooks=hooks,
        transactions=parts.transactions,
        clock=parts.clock,
        group=parts.topics.group,
        leases=shared.leases,
        plan_of=plan_of,
        permits_of=permits_of,
        outputs=outputs,
        limit_s=shared.claim_s,
    )
