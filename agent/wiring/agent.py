"""Builds an agent from what `docllm.agent.app`, or a simulation, has chosen for it."""

from docllm.agent.agent import Agent
from docllm.agent.handlers.calls.permits import CallPermits
from docllm.agent.hooks.done_batches import DoneBatches
from docllm.agent.hooks.runner import HookRunner
from docllm.agent.ledger.hook_runs import HookRun
from docllm.agent.maintenance.group_work import GroupWork
from docllm.agent.quota.estimate import CallSize
from docllm.agent.routes import RoutePlan
from docllm.agent.routes.names import plan_of_body
from docllm.agent.wiring.choices import AgentChoices
from docllm.agent.wiring.duties import make_duties
from docllm.agent.wiring.parts import AgentParts


def make_hook_runner(made: AgentParts) -> HookRunner:
    """Build the runner of the hooks that this agent's settings name."""
    choices, routes, clock = made.choices, made.choices.routes, made.clock

    def plan_of(value: bytes, run: HookRun) -> RoutePlan:
        plan = plan_of_body(value, routes.naming).within_batch(run.routes_allowed)
        following = routes.fallbacks(plan.first, clock.now_s(), plan)
        return plan.within(following[:1]) if following else plan

    def permits_of(value: bytes, plan: RoutePlan, run: HookRun) -> CallPermits:
        size = CallSize(task_type=run.type, input_bytes=len(value))
        return made.quotas.permits(
            plan.first,
            run.tenant,
            size,
            closed=lambda: bool(plan.refusal) or routes.closed(plan.first, clock.now_s()),
        )

    return HookRunner(
        hooks=made.handling.hooks,
        transactions=choices.parts.transactions,
        clock=clock,
        group=made.group,
        leases=choices.heartbeat,
        plan_of=plan_of,
        permits_of=permits_of,
        outputs=choices.outputs,
        copies=bool(choices.parts.config.document_allow),
        limit_s=made.claim_s,
        batches=DoneBatches(transactions=choices.parts.transactions, clock=clock, group=made.group)
        if choices.parts.config.on_batch_done is not None
        else None,
    )


def make_agent(choices: AgentChoices) -> Agent:
    """Build an agent: its parts, then the duties that run beside them."""
    made, parts = AgentParts(choices), choices.parts
    path, hooks = made.path, make_hook_runner(made)
    return Agent(
        dispatcher=path.dispatcher,
        claimer=path.claimer,
        ticker=path.ticker,
        admission=made.admission,
        slots=made.slots,
        settler=made.settler,
        intake=made.intake,
        sources=list(choices.sources.values()),
        inbox=choices.inbox,
        own_orders=made.own_orders,
        failures=made.failures,
        hooks=hooks,
        group_work=GroupWork(
            transactions=parts.transactions,
            relay=made.relay,
            admin=parts.admin,
            topics=parts.topics,
            reads_inbox=parts.config.inbox.enabled,
        ),
        duties=make_duties(made, hooks),
        clock=made.clock,
        counts=choices.counts,
        membership=choices.membership,
    )
