"""Builds an agent from what `agent.app`, or a simulation, has chosen for it.

Tested by tests/unit/agent/dispatch/test_dispatcher.py and tests/simulation/test_simulation.py.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from agent.agent import Agent, Membership
from agent.dispatch.records import Wakeups
from agent.documents.conversion.by_content import TextMaker
from agent.execution.guard_gate import GuardGate
from agent.execution.output_writer import Outputs
from agent.execution.publishing import Publishing
from agent.execution.quota_gate import QuotaGate
from agent.execution.resource_locks import ResourceLocks
from agent.execution.type_limits import TypeLimits
from agent.execution.unknown_types import UnknownTypes
from agent.handlers import Handler, Handlers, registry
from agent.handlers.context import Tools
from agent.handlers.deadline import claim_s, usual_limit_s
from agent.handlers.hooks import Hooks, load_hooks
from agent.handlers.processes.pool import HandlerProcesses, ProcessHandler
from agent.handlers.processes.process import ProcessLimits
from agent.handlers.suspects import Suspects
from agent.handlers.threads import HandlerThreads
from agent.inflight.decoder import RecordDecoder
from agent.inflight.limits import Limits
from agent.inflight.partitions import Partitions
from agent.judge import tiers_of
from agent.ledger.resource_locks import SqlLockTable
from agent.ledger.returned_letters import ReturnedLetters
from agent.ledger.sql_ledger import Executors, SqlLedger
from agent.maintenance.duty import Duty, Round, repeat
from agent.maintenance.group_work import GroupWork
from agent.maintenance.guard_keeper import GuardKeeper
from agent.maintenance.hook_runner import HookRunner
from agent.maintenance.intake import Intake
from agent.maintenance.loop_watch import LoopWatch
from agent.maintenance.reporter import Reporter
from agent.maintenance.resume_listener import ResumeListener
from agent.maintenance.rounds import repair_rounds
from agent.maintenance.route_call_up import RouteCallUp
from agent.membership.heartbeat import Heartbeat
from agent.membership.locks import AgentLocks
from agent.ports import Ledger, Source
from agent.process.containment import MemoryWatch
from agent.process.failures import Failures
from agent.quota.grants import GrantStore
from agent.reporting.latest_report import LatestReport
from agent.reporting.metrics import AgentMetrics
from agent.reporting.telemetry import Counts
from agent.routes import Router, route_of
from agent.routes.accounts import Accounts
from agent.routes.probe_sender import ProbeSender
from agent.wiring.core import Common, Dispatch, Execution, dispatch, execution
from agent.wiring.documents import make_documents
from agent.wiring.hooks import make_hook_runner
from agent.wiring.live_settings import (
    LiveSettings,
    LoadHandlers,
    LoadHooks,
    Rereading,
    reread_duties,
)
from agent.wiring.measured import MeasuredLedger, measured_accounts
from agent.wiring.quotas import quota_duties, quota_gate
from agent.wiring.traced import TracedLedger, attempt_traces
from producer.app import Parts, make_relay
from producer.replay.applier import make_applier
from schemas.ledger.transactions import Transactions
from schemas.objects.write_once import WriteOnceStore
from schemas.runtime.executors import Executor
from schemas.settings.config import TypeConfig
from schemas.task.agent_report import AgentReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The choices in which a real agent and a simulated one differ.

    `sources` are by destination; without an `inbox`, this agent does not read the inbox. `reading`
    reads documents, `outputs` keeps results outside the ledger, `apart` runs work that is too heavy
    for this process. `processes` run handlers. `duties` run beside the agent's own. `form` is a
    report with the fields that seldom change; `latest` receives each report. `watch` watches the
    event loop; a simulation has none. Without a `grant_store`, the agent keeps to its share of the
    provider's limits. `rereading` is how it reads its settings again, if it does.
    """

    parts: Parts
    limits: Limits
    sources: Mapping[str, Source]
    inbox: Source | None
    executors: Executors
    reading: Executor
    outputs: WriteOnceStore
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
    form: AgentReport
    latest: LatestReport
    processes: HandlerProcesses
    converters: TextMaker
    watch: LoopWatch | None = None
    grant_store: GrantStore | None = None
    rereading: Rereading | None = None
    metrics: AgentMetrics | None = None


def agent(chosen: Chosen) -> Agent:
    """Build an agent."""
    parts, relay = chosen.parts, make_relay(chosen.parts)
    common = _common(chosen, Publishing(relay))
    guards = GuardGate(clock=common.clock, longest_tier=common.longest_tier, ledger=common.ledger)
    quotas = quota_gate(parts)
    locks = _locks(chosen, common)
    load_handlers, load_hooks_of = _loaders(chosen, common)
    tools = _tools(chosen, common)
    handlers = Handlers(
        tools=tools,
        by_type=load_handlers(parts.config.types),
        run_suspect=Suspects(chosen.processes).run,
    )
    hooks = Hooks(tools=tools, by_kind=load_hooks_of(parts.config.types))
    types = TypeLimits(
        settings_of=partial(_type_settings, parts),
        tiers=tiers_of(parts.topics.tiers),
        clock=common.clock,
    )
    executing = _execution(chosen, common, guards, quotas, handlers, locks, types)
    hook_runner = make_hook_runner(
        parts,
        common=common,
        hooks=hooks,
        quotas=quotas,
        routes=chosen.routes,
        outputs=chosen.outputs,
    )
    dispatching = _dispatch(chosen, common, executing)
    inbox_partitions = _partitions(
        chosen, {"inbox": chosen.inbox} if chosen.inbox is not None else {}
    )
    repairing = repair_rounds(
        parts,
        relay=relay,
        applier=make_applier(parts, relay=relay, apart=chosen.apart, failed=common.memory.note),
        heartbeat=chosen.heartbeat,
        locks=chosen.locks,
        lost_records=common.lost_records,
        ask_about_tasks_of=dispatching.claimer.ask_about_tasks_of,
        ask_about_batches=dispatching.claimer.ask_about_batches,
        partitions=(dispatching.partitions, inbox_partitions),
    )
    route_duties = _route_duties(chosen, guards, common.publishing, types)
    intake, reporter = (
        _intake(chosen, common, inbox_partitions),
        _reporter(chosen, common, executing, locks),
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
        publishing=common.publishing,
        failures=common.failures,
        hooks=hook_runner,
        group_work=GroupWork(
            transactions=parts.transactions,
            relay=relay,
            admin=parts.admin,
            topics=parts.topics,
            reads_inbox=parts.config.inbox.enabled,
        ),
        duties=(
            *repairing,
            *chosen.duties,
            *route_duties.rounds,
            common.memory.run,
            _lock_round(locks, common),
            *_hook_rounds(chosen, hook_runner),
            reporter.run,
            *_watches(chosen, executing),
            *quota_duties(
                parts,
                gate=quotas,
                store=chosen.grant_store,
                admission=executing.admission,
                dispatching=dispatching,
                granted=common.wakeups.claim.set,
                jitter=chosen.jitter,
                is_live=chosen.rereading is not None,
            ),
            *_rereading(
                chosen,
                common,
                handlers=handlers,
                load_handlers=load_handlers,
                hooks=hooks,
                load_hooks=load_hooks_of,
                quotas=quotas,
                intake=intake,
                reporter=reporter,
                duties=route_duties,
            ),
        ),
        clock=common.clock,
        counts=common.counts,
        membership=chosen.membership,
    )


def _reporter(
    chosen: Chosen, common: Common, executing: Execution, locks: ResourceLocks
) -> Reporter:
    inbox = {} if chosen.inbox is None else {"inbox": chosen.inbox}
    return Reporter(
        form=chosen.form,
        latest=chosen.latest,
        admission=executing.admission,
        slots=executing.slots,
        locks=locks,
        routes=chosen.routes,
        sources=list({**chosen.sources, **inbox}.values()),
        topics=chosen.parts.topics,
        counts=common.counts,
        clock=common.clock,
    )


def _watches(chosen: Chosen, executing: Execution) -> Sequence[Round]:
    watch = chosen.watch
    return () if watch is None else (lambda: watch.run(executing.slots.work_of),)


def _common(chosen: Chosen, publishing: Publishing) -> Common:
    parts = chosen.parts
    longest_tier = tiers_of(parts.topics.tiers)[-1]
    ledger: Ledger = SqlLedger(
        database=parts.transactions.database,
        group=parts.topics.group,
        clock=parts.clock,
        executors=chosen.executors,
        longest_tier=longest_tier,
        hooked=lambda: parts.config.hooked,
        release=parts.config.agent.release,
    )
    if chosen.metrics is not None:
        ledger = MeasuredLedger(ledger, chosen.metrics, parts.clock)
    if (traces := attempt_traces(parts)) is not None:
        ledger = TracedLedger(ledger, traces, parts.clock)
    return Common(
        ledger=ledger,
        letters=ReturnedLetters(
            transactions=parts.transactions,
            clock=parts.clock,
            group=parts.topics.group,
            ledger_id=parts.ledger_id,
            redrive=parts.config.inbox.redrive,
        ),
        leases=chosen.heartbeat,
        publishing=publishing,
        wakeups=Wakeups(),
        lost_records=asyncio.Event(),
        failures=Failures(),
        memory=MemoryWatch(parts.clock),
        clock=parts.clock,
        counts=chosen.counts,
        limits=chosen.limits,
        longest_tier=longest_tier,
        deadline_s=claim_s(chosen.routes.longest_timeout_s, parts.config.types.values()),
        traces=traces,
    )


def _locks(chosen: Chosen, common: Common) -> ResourceLocks:
    parts = chosen.parts
    transactions = Transactions(
        database=parts.transactions.database, executor=chosen.executors.claim
    )
    table = SqlLockTable(transactions=transactions, group=parts.topics.group)
    return ResourceLocks(table=table, clock=common.clock)


def _lock_round(locks: ResourceLocks, common: Common) -> Round:
    """Return the round of the locks; it waits by itself while there is nothing to do."""
    duty = Duty(name="taking and giving back locks", work=locks.run_once, clock=common.clock)
    return partial(repeat, (duty,), partial(common.clock.sleep, 0.0))


def _execution(
    chosen: Chosen,
    common: Common,
    guards: GuardGate,
    quotas: QuotaGate,
    handlers: Handlers,
    locks: ResourceLocks,
    types: TypeLimits,
) -> Execution:
    limits, sqlite = chosen.limits, chosen.parts.transactions.database.sqlite
    unknown_types = UnknownTypes(
        knows=partial(_knows_type, chosen.parts),
        tiers=tiers_of(chosen.parts.topics.tiers),
        lane_topics=chosen.parts.topics.lanes,
        clock=common.clock,
    )
    return execution(
        common,
        size=chosen.parts.config.agent.slots,
        routes=chosen.routes,
        guards=guards,
        quotas=quotas,
        handlers=handlers,
        locks=locks,
        outputs=Outputs(
            store=chosen.outputs,
            allow=chosen.parts.config.document_allow,
            clock=common.clock,
        ),
        unknown_types=unknown_types,
        types=types,
        group_size=limits.sqlite_group if sqlite else limits.group,
        reply_limit_bytes=chosen.reply_limit_bytes,
    )


def _dispatch(chosen: Chosen, common: Common, executing: Execution) -> Dispatch:
    parts, topics = chosen.parts, chosen.parts.topics
    return dispatch(
        common,
        partitions=_partitions(chosen, chosen.sources),
        lanes=topics.lanes,
        weight_of=lambda tenant: parts.config.tenant(tenant).weight,
        is_apart=lambda name: parts.config.type_settings(name).slots is not None,
        decoder=RecordDecoder(
            ledger_id=parts.ledger_id, group=topics.group, naming=chosen.routes.naming
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
        apart=chosen.apart,
        clock=parts.clock,
        counts=chosen.counts,
        group=parts.topics.group,
        config=parts.config,
        publishing=common.publishing,
        failures=common.failures,
        memory=common.memory,
        limits=chosen.limits,
    )


def _type_settings(parts: Parts, name: str) -> TypeConfig:
    return parts.config.type_settings(name)


def _knows_type(parts: Parts, name: str) -> bool:
    return parts.config.knows_type(name)


def _hook_rounds(chosen: Chosen, runner: HookRunner) -> Sequence[Round]:
    """Return the round that runs hooks; none if the settings have no hooks and cannot change."""
    return (runner.run,) if runner.kinds or chosen.rereading is not None else ()


def _loaders(chosen: Chosen, common: Common) -> tuple[LoadHandlers, LoadHooks]:
    """Return the functions that load types' handlers and hooks.

    They are used at the start and after a change of settings.
    """
    slots = chosen.parts.config.agent.slots
    threads = HandlerThreads(most_left=slots, failed=common.failures.report)
    in_process = partial(_in_process, chosen.processes)
    return (
        partial(registry.load, run_blocking=threads.run, in_process=in_process),
        partial(load_hooks, run_blocking=threads.run),
    )


def _tools(chosen: Chosen, common: Common) -> Tools:
    config, metrics = chosen.parts.config, chosen.metrics
    return Tools(
        account=chosen.accounts
        if metrics is None
        else measured_accounts(chosen.accounts, metrics, common.clock),
        documents=make_documents(config, chosen.reading, chosen.converters),
        clock=chosen.parts.clock,
        apart=chosen.apart,
        jitter=chosen.jitter,
        prices=config.prices,
        tiers=tiers_of(config.retry_tiers),
        types=config.types,
        max_attempts_of=config.max_attempts_of,
        failed=common.memory.note,
        errors=common.counts.handler_errors,
        usual_limit_s=usual_limit_s(chosen.routes.longest_timeout_s),
    )


def _in_process(processes: HandlerProcesses, name: str, settings: TypeConfig) -> Handler:
    """Return the handler of a type that runs in processes. Raises ConfigError."""
    path = settings.handler or ""
    processes.require_usable(path)
    limits = ProcessLimits(name, memory_mb=settings.memory_mb, time_s=settings.time_s)
    return partial(processes.run, ProcessHandler(path, limits))


@dataclass(frozen=True, slots=True)
class _RouteDuties:
    """The duties for guards and routes."""

    keeper: GuardKeeper
    call_up: RouteCallUp
    rounds: Sequence[Round]


def _route_duties(
    chosen: Chosen, guards: GuardGate, publishing: Publishing, types: TypeLimits
) -> _RouteDuties:
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
        transactions=transactions,
        clock=clock,
        group=group,
        routes=routes,
        knows_type=partial(_knows_type, parts),
        is_open=types.is_open,
        publishing=publishing,
    )
    rounds = (keeper.run, prober.run, listener.run, call_up.run)
    return _RouteDuties(keeper, call_up, rounds)


def _rereading(
    chosen: Chosen,
    common: Common,
    *,
    handlers: Handlers,
    load_handlers: LoadHandlers,
    hooks: Hooks,
    load_hooks: LoadHooks,
    quotas: QuotaGate,
    intake: Intake,
    reporter: Reporter,
    duties: _RouteDuties,
) -> Sequence[Round]:
    """Return the duties that read the settings again."""
    parts, how = chosen.parts, chosen.rereading
    if how is None:
        return ()
    live = LiveSettings(
        parts=parts,
        routes=chosen.routes,
        accounts=chosen.accounts,
        handlers=handlers,
        load_handlers=load_handlers,
        hooks=hooks,
        load_hooks=load_hooks,
        tools=partial(_tools, chosen, common),
        quotas=quotas.configured,
        intake=intake,
        keeper=duties.keeper,
        call_up=duties.call_up,
        reporter=reporter,
        form=how.form,
        claim_s=common.deadline_s,
    )
    return reread_duties(live, how, counts=common.counts, executor=chosen.reading)
