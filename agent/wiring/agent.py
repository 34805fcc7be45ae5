"""Builds an agent from what `agent.app`, or a simulation, has chosen for it.

Tested by tests/unit/agent/dispatch/test_dispatcher.py and tests/simulation/test_simulation.py.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.agent import Agent, Membership
from agent.deadline import DEADLINE_MARGIN_S
from agent.dispatch.records import Wakeups
from agent.execution.guard_gate import GuardGate
from agent.execution.publishing import Publishing
from agent.handlers import Documents, Handlers, registry
from agent.handlers.context import Tools
from agent.inflight.decoder import RecordDecoder
from agent.inflight.limits import Limits
from agent.inflight.partitions import Partitions
from agent.intake import Intake
from agent.judge import tiers_of
from agent.ledger.sql_ledger import Executors, SqlLedger
from agent.maintenance import reaper
from agent.maintenance.duty import Round
from agent.maintenance.group_work import GroupWork
from agent.maintenance.guard_keeper import GuardKeeper
from agent.maintenance.resume_listener import ResumeListener
from agent.maintenance.route_call_up import RouteCallUp
from agent.membership.heartbeat import Heartbeat
from agent.membership.locks import AgentLocks
from agent.ports import Source
from agent.process.containment import MemoryWatch
from agent.process.failures import Failures
from agent.reporting.telemetry import Counts
from agent.routes import Router, route_of
from agent.routes.accounts import Accounts
from agent.routes.probe_sender import ProbeSender
from agent.wiring.core import dispatch, execution
from producer.app import Parts
from producer.input.excluded_files import own_files
from producer.relay.relay import Relay
from schemas.runtime.executors import Executor


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The choices in which a real agent and a simulated one differ.

    `sources` are by destination; without an `inbox`, this agent does not read the inbox. `reading`
    reads documents, `apart` runs work that is too heavy for this process. `duties` run beside the
    agent's own.
    """

    parts: Parts
    limits: Limits
    sources: Mapping[str, Source]
    inbox: Source | None
    executors: Executors
    reading: Executor
    apart: Executor
    jitter: Callable[[], float]
    counts: Counts
    routes: Router
    accounts: Accounts
    heartbeat: Heartbeat
    locks: AgentLocks | None
    reply_limit_bytes: int
    duties: Sequence[Round]
    membership: Membership


def notice(parts: Parts, counts: Counts, routes: Router) -> str:
    """Return why no calls start, for a person; empty if they do."""
    counts.say("route", routes.notice(parts.clock.now_s()))
    return counts.notice()


def agent(chosen: Chosen) -> Agent:
    """Build an agent."""
    parts, limits, routes, counts = chosen.parts, chosen.limits, chosen.routes, chosen.counts
    clock, topics, config = parts.clock, parts.topics, parts.config
    transactions, sqlite = parts.transactions, parts.transactions.database.sqlite
    longest_tier = tiers_of(topics.tiers)[-1]
    deadline_s = routes.longest_timeout_s + DEADLINE_MARGIN_S
    lost_records, wakeups, failures, memory = (
        asyncio.Event(),
        Wakeups(),
        Failures(),
        MemoryWatch(clock),
    )
    relay = Relay(transactions=transactions, publisher=parts.publisher, topics=topics, clock=clock)
    publishing = Publishing(relay)
    ledger = SqlLedger(
        database=transactions.database,
        group=topics.group,
        clock=clock,
        executors=chosen.executors,
        longest_tier=longest_tier,
    )
    guards = GuardGate(clock=clock, longest_tier=longest_tier, ledger=ledger)
    executing = execution(
        size=config.agent.slots,
        leases=chosen.heartbeat,
        ledger=ledger,
        routes=routes,
        guards=guards,
        handlers=_handlers(chosen, memory),
        deadline_s=deadline_s,
        group_size=limits.sqlite_group if sqlite else limits.group,
        reply_limit_bytes=chosen.reply_limit_bytes,
        longest_tier=longest_tier,
        publishing=publishing,
        freed=wakeups.claim,
        memory=memory,
        clock=clock,
        counts=counts,
        limits=limits,
    )
    dispatching = dispatch(
        partitions=Partitions(
            {topics.name(name): source for name, source in chosen.sources.items()}, limits=limits
        ),
        main_topic=topics.name("tasks"),
        decoder=RecordDecoder(ledger_id=parts.ledger_id, group=topics.group, naming=routes.naming),
        ledger=ledger,
        admission=executing.admission,
        slots=executing.slots,
        wakeups=wakeups,
        clock=clock,
        counts=counts,
        leases=chosen.heartbeat,
        deadline_s=deadline_s,
        publishing=publishing,
        lost_records=lost_records,
        failures=failures,
        limits=limits,
    )
    inbox_partitions = Partitions(
        {topics.name("inbox"): chosen.inbox} if chosen.inbox is not None else {}, limits=limits
    )
    intake = Intake(
        partitions=inbox_partitions,
        transactions=transactions,
        apart=chosen.apart,
        clock=clock,
        counts=counts,
        group=topics.group,
        config=config,
        publishing=publishing,
        failures=failures,
        memory=memory,
        limits=limits,
    )
    repairing = reaper.rounds(
        transactions=transactions,
        clock=clock,
        topics=topics,
        admin=parts.admin,
        relay=relay,
        heartbeat=chosen.heartbeat,
        locks=chosen.locks,
        sweep_slack_s=config.agent.sweep_slack_s,
        lost_records=lost_records,
        agents_gone=dispatching.claimer.agents_gone,
        partitions=(dispatching.partitions, inbox_partitions),
        kafka=parts.kafka,
    )
    return Agent(
        dispatcher=dispatching.dispatcher,
        claimer=dispatching.claimer,
        ticker=dispatching.ticker,
        admission=executing.admission,
        slots=executing.slots,
        settler=executing.settler,
        intake=intake,
        sources=list(chosen.sources.values()),
        inbox=chosen.inbox,
        publishing=publishing,
        failures=failures,
        group_work=GroupWork(
            transactions=transactions,
            relay=relay,
            admin=parts.admin,
            topics=topics,
            reads_inbox=config.inbox.enabled,
        ),
        duties=(
            *repairing,
            *chosen.duties,
            *_route_duties(chosen, guards, publishing),
            memory.run,
        ),
        clock=clock,
        counts=counts,
        membership=chosen.membership,
    )


def _handlers(chosen: Chosen, memory: MemoryWatch) -> Handlers:
    config = chosen.parts.config
    tools = Tools(
        account=chosen.accounts,
        documents=Documents(roots=config.roots(), own=own_files(config), executor=chosen.reading),
        clock=chosen.parts.clock,
        apart=chosen.apart,
        jitter=chosen.jitter,
        prices=config.prices,
        tiers=tiers_of(config.retry_tiers),
        types=config.types,
        failed=memory.note,
    )
    return Handlers(tools=tools, by_type=registry.load(config.types))


def _route_duties(chosen: Chosen, guards: GuardGate, publishing: Publishing) -> Sequence[Round]:
    """Return the duties for guards and routes."""
    parts, routes = chosen.parts, chosen.routes
    transactions, clock, group = parts.transactions, parts.clock, parts.topics.group
    prober = ProbeSender(routes=routes, accounts=chosen.accounts, clock=clock)
    keeper = GuardKeeper(
        transactions=transactions,
        clock=clock,
        group=group,
        gate=guards,
        probe_s=parts.config.guard.probe_s,
        prober=prober,
        route_of=lambda value: route_of(value, routes.naming),
        publishing=publishing,
    )
    listener = ResumeListener(transactions=transactions, clock=clock, group=group, routes=routes)
    call_up = RouteCallUp(
        transactions=transactions, clock=clock, group=group, routes=routes, publishing=publishing
    )
    return (keeper.run, prober.run, listener.run, call_up.run)
