"""Builds an agent from what `agent.app`, or a simulation, has chosen for it.

Tested by tests/unit/agent/dispatch/test_dispatcher.py and tests/simulation/test_simulation.py.
"""

import asyncio
from collections.abc import Mapping

from agent.agent import Agent
from agent.dispatch.record_finisher import Wakeups
from agent.execution.guard_gate import GuardGate
from agent.execution.lock_requests import ResourceLocks
from agent.execution.observability.attempt_traces import AttemptTraces
from agent.execution.observability.measured_ports import MeasuredLedger
from agent.execution.observability.traced_ledger import TracedLedger
from agent.execution.output_writer import Outputs
from agent.execution.settler import Settler
from agent.execution.type_limits import TypeLimits
from agent.execution.unknown_types import UnknownTypes
from agent.handlers import Handlers
from agent.handlers.deadline import claim_s
from agent.inflight.decoder import RecordDecoder
from agent.inflight.partitions import Partitions
from agent.intake.acceptance import Intake
from agent.judge import Tier, tiers_of
from agent.ledger.leases.lock_rows import SqlLockTable
from agent.ledger.returned_letters import ReturnedLetters
from agent.ledger.sql_ledger import SqlLedger
from agent.maintenance.group_work import GroupWork
from agent.ports import Ledger, Source
from agent.process.containment import MemoryWatch
from agent.process.failures import Failures
from agent.wiring.choices import Chosen
from agent.wiring.duties import Built, duties
from agent.wiring.handlers import handling
from agent.wiring.hooks import make_hook_runner
from agent.wiring.quotas import quota_gate
from agent.wiring.record_path import Common, Dispatch, Execution, Gates, dispatch, execution
from producer.app import Parts, make_relay, messaging_system
from producer.publishing.background import Publishing
from producer.publishing.relay import Relay
from schemas.ledger.transactions import Transactions


def wired_agent(chosen: Chosen) -> Agent:
    """Build an agent: its parts, then the duties that run beside them."""
    built = _built(chosen)
    common, executing, dispatching = built.common, built.executing, built.dispatching
    return Agent(
        dispatcher=dispatching.dispatcher,
        claimer=dispatching.claimer,
        ticker=dispatching.ticker,
        admission=executing.admission,
        slots=executing.slots,
        settler=executing.settler,
        intake=built.intake,
        sources=list(chosen.handles.sources.values()),
        inbox=chosen.handles.inbox,
        publishing=common.publishing,
        failures=common.failures,
        hooks=built.hook_runner,
        group_work=_group_work(chosen.parts, built.relay),
        duties=duties(chosen, built),
        clock=common.clock,
        counts=common.counts,
        membership=chosen.registration.membership,
    )


def _built(chosen: Chosen) -> Built:
    """Build the parts of an agent, each from the parts before it."""
    relay = make_relay(chosen.parts)
    common = _common(chosen, Publishing(relay))
    gates = _gates(chosen, common)
    handled = handling(chosen, common)
    executing = _execution(chosen, common, gates, handled.handlers)
    dispatching = _dispatch(chosen, common, executing)
    inbox = {} if chosen.handles.inbox is None else {"inbox": chosen.handles.inbox}
    inbox_partitions = _partitions(chosen, inbox)
    return Built(
        relay=relay,
        common=common,
        gates=gates,
        handling=handled,
        executing=executing,
        dispatching=dispatching,
        inbox_partitions=inbox_partitions,
        intake=_intake(chosen, common, inbox_partitions),
        hook_runner=make_hook_runner(
            chosen.parts,
            common=common,
            hooks=handled.hooks,
            quotas=gates.quotas,
            routes=chosen.providers.routes,
            outputs=chosen.outputs,
        ),
    )


def _common(chosen: Chosen, publishing: Publishing) -> Common:
    parts = chosen.parts
    longest_tier, traces = tiers_of(parts.topics.tiers)[-1], _attempt_traces(parts)
    return Common(
        ledger=_ledger(chosen, longest_tier, traces),
        letters=ReturnedLetters(
            transactions=parts.transactions,
            clock=parts.clock,
            group=parts.topics.group,
            ledger_id=parts.ledger_id,
            redrive=parts.config.inbox.redrive,
        ),
        leases=chosen.registration.heartbeat,
        publishing=publishing,
        wakeups=Wakeups(),
        lost_records=asyncio.Event(),
        failures=Failures(),
        memory=MemoryWatch(parts.clock),
        clock=parts.clock,
        counts=chosen.instruments.counts,
        limits=chosen.limits,
        longest_tier=longest_tier,
        claim_s=claim_s(chosen.providers.routes.longest_timeout_s, parts.config.types.values()),
        traces=traces,
    )


def _attempt_traces(parts: Parts) -> AttemptTraces | None:
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


def _ledger(chosen: Chosen, longest_tier: Tier, traces: AttemptTraces | None) -> Ledger:
    """Return the ledger, within what measures and traces its claims and settles."""
    parts, metrics = chosen.parts, chosen.instruments.metrics
    ledger: Ledger = SqlLedger(
        database=parts.transactions.database,
        group=parts.topics.group,
        clock=parts.clock,
        executors=chosen.workers.executors,
        longest_tier=longest_tier,
        hooked=lambda: parts.config.hooked,
        release=parts.config.agent.release,
    )
    if metrics is not None:
        ledger = MeasuredLedger(ledger, metrics, parts.clock)
    return ledger if traces is None else TracedLedger(ledger, traces, parts.clock)


def _gates(chosen: Chosen, common: Common) -> Gates:
    parts, clock = chosen.parts, common.clock
    tiers = tiers_of(parts.topics.tiers)
    transactions = Transactions(
        database=parts.transactions.database, executor=chosen.workers.executors.claim
    )
    table = SqlLockTable(transactions=transactions, group=parts.topics.group)
    return Gates(
        guards=GuardGate(clock=clock, longest_tier=common.longest_tier, ledger=common.ledger),
        quotas=quota_gate(parts),
        locks=ResourceLocks(table=table, clock=clock),
        types=TypeLimits(settings_of=chosen.type_settings, tiers=tiers, clock=clock),
        unknown_types=UnknownTypes(
            knows=chosen.knows_type,
            tiers=tiers,
            lane_topics=parts.topics.lanes,
            clock=clock,
        ),
    )


def _execution(chosen: Chosen, common: Common, gates: Gates, handlers: Handlers) -> Execution:
    parts, limits = chosen.parts, chosen.limits
    sqlite = parts.transactions.database.sqlite
    settler = Settler(
        ledger=common.ledger,
        page_size=limits.sqlite_settle_page if sqlite else limits.settle_page,
        page_bytes=limits.settle_page_bytes,
        reply_limit_bytes=chosen.reply_limit_bytes,
        clock=common.clock,
        publishing=common.publishing,
    )
    return execution(
        common,
        gates,
        size=parts.config.agent.slots,
        routes=chosen.providers.routes,
        handlers=handlers,
        outputs=Outputs(
            store=chosen.outputs, allow=parts.config.document_allow, clock=common.clock
        ),
        settler=settler,
    )


def _dispatch(chosen: Chosen, common: Common, executing: Execution) -> Dispatch:
    parts, topics = chosen.parts, chosen.parts.topics
    return dispatch(
        common,
        partitions=_partitions(chosen, chosen.handles.sources),
        lanes=topics.lanes,
        weight_of=lambda tenant: parts.config.tenant(tenant).weight,
        has_own_queue=lambda name: parts.config.type_settings(name).slots is not None,
        decoder=RecordDecoder(
            ledger_id=parts.ledger_id, group=topics.group, naming=chosen.providers.routes.naming
        ),
        admission=executing.admission,
        slots=executing.slots,
    )


def _partitions(chosen: Chosen, sources: Mapping[str, Source]) -> Partitions:
    name = chosen.parts.topics.name
    return Partitions(
        {name(destination): source for destination, source in sources.items()},
        limits=chosen.limits,
    )


def _intake(chosen: Chosen, common: Common, partitions: Partitions) -> Intake:
    parts = chosen.parts
    return Intake(
        partitions=partitions,
        transactions=parts.transactions,
        letters=common.letters,
        apart=chosen.workers.apart,
        clock=parts.clock,
        counts=common.counts,
        group=parts.topics.group,
        config=parts.config,
        publishing=common.publishing,
        failures=common.failures,
        memory=common.memory,
        limits=chosen.limits,
    )


def _group_work(parts: Parts, relay: Relay) -> GroupWork:
    return GroupWork(
        transactions=parts.transactions,
        relay=relay,
        admin=parts.admin,
        topics=parts.topics,
        reads_inbox=parts.config.inbox.enabled,
    )
