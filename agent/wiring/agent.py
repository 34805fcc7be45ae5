"""Builds an agent from what `docllm.agent.app`, or a simulation, has chosen for it."""

import asyncio
from collections.abc import Mapping

from docllm.agent.agent import Agent
from docllm.agent.dispatch.record_finisher import Wakeups
from docllm.agent.execution.guard_gate import GuardGate
from docllm.agent.execution.lock_requests import ResourceLocks
from docllm.agent.execution.observability.attempt_traces import AttemptTraces
from docllm.agent.execution.observability.measured_ports import MeasuredLedger
from docllm.agent.execution.observability.traced_ledger import TracedLedger
from docllm.agent.execution.output_writer import Outputs
from docllm.agent.execution.settler import Settler
from docllm.agent.execution.type_limits import TypeLimits
from docllm.agent.execution.unknown_types import UnknownTypes
from docllm.agent.handlers import Handlers
from docllm.agent.handlers.claim_time import claim_s
from docllm.agent.inflight.decoder import RecordDecoder
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.intake.acceptance import Intake
from docllm.agent.judge import Tier, tiers_of
from docllm.agent.ledger.leases.lock_rows import SqlLockTable
from docllm.agent.ledger.returned_letters import ReturnedLetters
from docllm.agent.ledger.sql_ledger import SqlLedger
from docllm.agent.maintenance.group_work import GroupWork
from docllm.agent.ports import Ledger, Source
from docllm.agent.process.containment import MemoryWatch
from docllm.agent.process.failures import Failures
from docllm.agent.wiring.choices import AgentChoices
from docllm.agent.wiring.duties import WiredParts, make_duties
from docllm.agent.wiring.handlers import make_handling
from docllm.agent.wiring.hooks import make_hook_runner
from docllm.agent.wiring.quotas import make_quota_gate
from docllm.agent.wiring.record_path import (
    Dispatch,
    Execution,
    Gates,
    SharedParts,
    make_dispatch,
    make_execution,
)
from docllm.producer.app import Parts, make_relay, messaging_system
from docllm.producer.publishing.own_orders import OwnOrders
from docllm.producer.publishing.relay import Relay
from docllm.schemas.ledger.transactions import Transactions


def make_agent(choices: AgentChoices) -> Agent:
    """Build an agent: its parts, then the duties that run beside them."""
    wired = _make_parts(choices)
    shared, executing, dispatching = wired.shared, wired.executing, wired.dispatching
    return Agent(
        dispatcher=dispatching.dispatcher,
        claimer=dispatching.claimer,
        ticker=dispatching.ticker,
        admission=executing.admission,
        slots=executing.slots,
        settler=executing.settler,
        intake=wired.intake,
        sources=list(choices.handles.sources.values()),
        inbox=choices.handles.inbox,
        own_orders=shared.own_orders,
        failures=shared.failures,
        hooks=wired.hook_runner,
        group_work=_make_group_work(choices.parts, wired.relay),
        duties=make_duties(choices, wired),
        clock=shared.clock,
        counts=shared.counts,
        membership=choices.registration.membership,
    )


def _make_parts(choices: AgentChoices) -> WiredParts:
    """Build the parts of an agent, each from the parts before it."""
    relay = make_relay(choices.parts)
    shared = _make_shared(choices, OwnOrders(relay))
    gates = _make_gates(choices, shared)
    handling = make_handling(choices, shared)
    executing = _make_execution(choices, shared, gates, handling.handlers)
    dispatching = _make_dispatch(choices, shared, executing)
    inbox = {} if choices.handles.inbox is None else {"inbox": choices.handles.inbox}
    inbox_partitions = _make_partitions(choices, inbox)
    return WiredParts(
        relay=relay,
        shared=shared,
        gates=gates,
        handling=handling,
        executing=executing,
        dispatching=dispatching,
        inbox_partitions=inbox_partitions,
        intake=_make_intake(choices, shared, inbox_partitions),
        hook_runner=make_hook_runner(
            choices.parts,
            shared=shared,
            hooks=handling.hooks,
            quotas=gates.quotas,
            routes=choices.providers.routes,
            outputs=choices.outputs,
        ),
    )


def _make_shared(choices: AgentChoices, own_orders: OwnOrders) -> SharedParts:
    parts = choices.parts
    longest_tier, traces = tiers_of(parts.topics.tiers)[-1], _make_attempt_traces(parts)
    return SharedParts(
        ledger=_make_ledger(choices, longest_tier, traces),
        letters=ReturnedLetters(
            transactions=parts.transactions,
            clock=parts.clock,
            group=parts.topics.group,
            ledger_id=parts.ledger_id,
            redrive=parts.config.inbox.redrive,
        ),
        leases=choices.registration.heartbeat,
        own_orders=own_orders,
        wakeups=Wakeups(),
        lost_records=asyncio.Event(),
        failures=Failures(),
        memory=MemoryWatch(parts.clock),
        clock=parts.clock,
        counts=choices.instruments.counts,
        limits=choices.limits,
        longest_tier=longest_tier,
        claim_s=claim_s(choices.providers.routes.longest_timeout_s, parts.config.types.values()),
        traces=traces,
    )


def _make_attempt_traces(parts: Parts) -> AttemptTraces | None:
    """Return the recorder of an agent's attempt traces; None if nothing is traced."""
    if parts.spans is None:
        return None
    otel = parts.config.otel
    return AttemptTraces(
        spans=parts.spans,
        ledger=parts.ledger_id,
        group=parts.topics.group,
        system=messaging_system(parts.config),
        ratio=otel.ratio,
        to_provider=otel.to_provider,
        clock=parts.clock,
    )


def _make_ledger(choices: AgentChoices, longest_tier: Tier, traces: AttemptTraces | None) -> Ledger:
    """Return the ledger, within what measures and traces its claims and settles."""
    parts, metrics = choices.parts, choices.instruments.metrics
    ledger: Ledger = SqlLedger(
        database=parts.transactions.database,
        group=parts.topics.group,
        clock=parts.clock,
        executors=choices.workers.executors,
        longest_tier=longest_tier,
        hooked=lambda: parts.config.hooked,
        release=parts.config.agent.release,
    )
    if metrics is not None:
        ledger = MeasuredLedger(ledger, metrics=metrics, clock=parts.clock)
    return ledger if traces is None else TracedLedger(ledger, traces=traces, clock=parts.clock)


def _make_gates(choices: AgentChoices, shared: SharedParts) -> Gates:
    parts, clock = choices.parts, shared.clock
    tiers = tiers_of(parts.topics.tiers)
    transactions = Transactions(
        database=parts.transactions.database, executor=choices.workers.executors.claim
    )
    table = SqlLockTable(transactions=transactions, group=parts.topics.group)
    return Gates(
        guards=GuardGate(clock=clock, longest_tier=shared.longest_tier, ledger=shared.ledger),
        quotas=make_quota_gate(parts),
        locks=ResourceLocks(table=table, clock=clock),
        types=TypeLimits(types=parts.config.types, tiers=tiers, clock=clock),
        unknown_types=UnknownTypes(
            knows=choices.knows_type,
            tiers=tiers,
            lane_topics=parts.topics.lanes,
            clock=clock,
        ),
    )


def _make_execution(
    choices: AgentChoices, shared: SharedParts, gates: Gates, handlers: Handlers
) -> Execution:
    parts, limits = choices.parts, choices.limits
    sqlite = parts.transactions.database.sqlite
    settler = Settler(
        ledger=shared.ledger,
        page_size=limits.sqlite_settle_page if sqlite else limits.settle_page,
        page_bytes=limits.settle_page_bytes,
        reply_limit_bytes=choices.reply_limit_bytes,
        own_orders=shared.own_orders,
        at_once=choices.workers.executors.settles_at_once,
    )
    return make_execution(
        shared,
        gates,
        size=parts.config.agent.slots,
        routes=choices.providers.routes,
        handlers=handlers,
        outputs=Outputs(
            store=choices.outputs, allow=parts.config.document_allow, clock=shared.clock
        ),
        settler=settler,
    )


def _make_dispatch(choices: AgentChoices, shared: SharedParts, executing: Execution) -> Dispatch:
    parts, topics = choices.parts, choices.parts.topics
    return make_dispatch(
        shared,
        partitions=_make_partitions(choices, choices.handles.sources),
        lanes=topics.lanes,
        weight_of=lambda tenant: parts.config.tenant(tenant).weight,
        has_own_queue=lambda name: parts.config.type_settings(name).slots is not None,
        decoder=RecordDecoder(
            ledger_id=parts.ledger_id, group=topics.group, naming=choices.providers.routes.naming
        ),
        admission=executing.admission,
        slots=executing.slots,
    )


def _make_partitions(choices: AgentChoices, sources: Mapping[str, Source]) -> Partitions:
    name = choices.parts.topics.name
    return Partitions(
        {name(destination): source for destination, source in sources.items()},
        limits=choices.limits,
    )


def _make_intake(choices: AgentChoices, shared: SharedParts, partitions: Partitions) -> Intake:
    parts = choices.parts
    return Intake(
        partitions=partitions,
        transactions=parts.transactions,
        letters=shared.letters,
        apart=choices.workers.apart,
        clock=parts.clock,
        counts=shared.counts,
        group=parts.topics.group,
        config=parts.config,
        own_orders=shared.own_orders,
        failures=shared.failures,
        memory=shared.memory,
        limits=choices.limits,
    )


def _make_group_work(parts: Parts, relay: Relay) -> GroupWork:
    return GroupWork(
        transactions=parts.transactions,
        relay=relay,
        admin=parts.admin,
        topics=parts.topics,
        reads_inbox=parts.config.inbox.enabled,
    )
