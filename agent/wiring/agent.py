"""Builds an agent from what `docllm.agent.app`, or a simulation, has chosen for it."""

from docllm.agent.agent import Agent
from docllm.agent.maintenance.group_work import GroupWork
from docllm.agent.wiring.choices import AgentChoices
from docllm.agent.wiring.duties import make_duties
from docllm.agent.wiring.hooks import make_hook_runner
from docllm.agent.wiring.parts import AgentParts


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
