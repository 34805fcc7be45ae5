"""Builds the part that runs hooks.

Tested by tests/integration/test_hooks.py.
"""

from agent.execution.quota_gate import QuotaGate
from agent.handlers.hooks import Hooks
from agent.handlers.turns import Turns
from agent.ledger.hook_runs import HookRun
from agent.maintenance.hook_runner import HookRunner, HookTurns
from agent.quota.estimate import CallSize
from agent.routes import Router, route_of
from agent.wiring.core import Common
from producer.app import Parts
from schemas.objects.write_once import WriteOnceStore


def make_hook_runner(
    parts: Parts,
    *,
    common: Common,
    hooks: Hooks,
    quotas: QuotaGate,
    routes: Router,
    outputs: WriteOnceStore,
) -> HookRunner:
    """Build the runner of the hooks that this agent's settings name."""

    def turns_of(value: bytes, route: str, run: HookRun) -> Turns:
        size = CallSize(task_type=run.type, input_bytes=len(value))
        return HookTurns(
            turns=quotas.turns(route, run.tenant, size),
            closed=lambda: routes.closed(route, parts.clock.now_s()),
        )

    return HookRunner(
        hooks=hooks,
        transactions=parts.transactions,
        clock=parts.clock,
        group=parts.topics.group,
        leases=common.leases,
        route_of=lambda value: route_of(value, routes.naming),
        turns_of=turns_of,
        outputs=outputs,
        limit_s=common.claim_s,
    )
