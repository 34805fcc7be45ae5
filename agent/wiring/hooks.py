"""Builds the part that runs hooks.

Tested by tests/integration/handlers/test_hooks.py.
"""

from agent.execution.quota_gate import QuotaGate
from agent.handlers.calls.permits import CallPermits
from agent.hooks.bounds import HookPermits
from agent.hooks.functions import Hooks
from agent.hooks.runner import HookRunner
from agent.ledger.hook_runs import HookRun
from agent.quota.estimate import CallSize
from agent.routes import Router, route_of
from agent.wiring.record_path import SharedParts
from producer.app import Parts
from schemas.objects.write_once import WriteOnceStore


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

    def permits_of(value: bytes, route: str, run: HookRun) -> CallPermits:
        size = CallSize(task_type=run.type, input_bytes=len(value))
        return HookPermits(
            call_permits=quotas.permits(route, run.tenant, size),
            closed=lambda: routes.closed(route, parts.clock.now_s()),
        )

    return HookRunner(
        hooks=hooks,
        transactions=parts.transactions,
        clock=parts.clock,
        group=parts.topics.group,
        leases=shared.leases,
        route_of=lambda value: route_of(value, routes.naming),
        permits_of=permits_of,
        outputs=outputs,
        limit_s=shared.claim_s,
    )
