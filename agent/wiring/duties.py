"""Builds the duties that run beside an agent's records, from the parts that they look after."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from docllm.agent.execution.lock_requests import ResourceLocks
from docllm.agent.hooks.runner import HookRunner
from docllm.agent.inflight.partitions import Partitions
from docllm.agent.intake.acceptance import Intake
from docllm.agent.maintenance.duty import Duty, DutyLoop, repeat
from docllm.agent.maintenance.monitoring.reporter import Reporter
from docllm.agent.maintenance.rounds import repair_loops
from docllm.agent.maintenance.waits.call_up_walk import CallUpWalk
from docllm.agent.maintenance.waits.guard_keeper import GuardKeeper
from docllm.agent.maintenance.waits.resume_listener import ResumeListener
from docllm.agent.ports import Clock
from docllm.agent.routes.names import preview
from docllm.agent.routes.probe_sender import ProbeSender
from docllm.agent.wiring.choices import AgentChoices
from docllm.agent.wiring.handlers import Handling
from docllm.agent.wiring.live_settings import LiveSettings, make_reread_duties
from docllm.agent.wiring.quotas import make_quota_duties
from docllm.agent.wiring.record_path import Dispatch, Execution, Gates, SharedParts
from docllm.producer.publishing.relay import Relay
from docllm.producer.replay.applier import make_applier


@dataclass(frozen=True, slots=True, kw_only=True)
class WiredParts:
    """The parts of an agent that are there before its duties."""

    relay: Relay
    shared: SharedParts
    gates: Gates
    handling: Handling
    executing: Execution
    dispatching: Dispatch
    inbox_partitions: Partitions
    intake: Intake
    hook_runner: HookRunner


def make_duties(choices: AgentChoices, wired: WiredParts) -> Sequence[DutyLoop]:
    """Build the duties of an agent."""
    of_routes = _make_route_duties(choices, wired)
    reporter = _make_reporter(choices, wired)
    return (
        *_make_repair_loops(choices, wired),
        *choices.duties,
        *of_routes.loops,
        wired.shared.memory.run,
        _make_lock_loop(wired.gates.locks, wired.shared.clock),
        *_make_hook_loops(choices, wired.hook_runner),
        reporter.run,
        *_make_loop_watch(choices, wired.executing),
        *_make_quota_duties(choices, wired),
        *_make_reread_duties(choices, wired, reporter, of_routes),
    )


def _make_repair_loops(choices: AgentChoices, wired: WiredParts) -> Sequence[DutyLoop]:
    shared, claimer = wired.shared, wired.dispatching.claimer
    return repair_loops(
        choices.parts,
        relay=wired.relay,
        applier=make_applier(
            choices.parts,
            relay=wired.relay,
            apart=choices.workers.apart,
            failed=shared.memory.note,
        ),
        heartbeat=choices.registration.heartbeat,
        locks=choices.registration.locks,
        lost_records=shared.lost_records,
        ask_about_tasks_of=claimer.ask_about_tasks_of,
        ask_about_batches=claimer.ask_about_batches,
        partitions=(wired.dispatching.partitions, wired.inbox_partitions),
    )


@dataclass(frozen=True, slots=True)
class _RouteDuties:
    """The duties for guards and routes."""

    keeper: GuardKeeper
    call_up: CallUpWalk
    loops: Sequence[DutyLoop]


def _make_route_duties(choices: AgentChoices, wired: WiredParts) -> _RouteDuties:
    parts, routes = choices.parts, choices.providers.routes
    transactions, clock, group = parts.transactions, parts.clock, parts.topics.group
    probe_sender = ProbeSender(
        routes=routes, route_clients=choices.providers.route_clients, clock=clock
    )
    keeper = GuardKeeper(
        transactions=transactions,
        clock=clock,
        group=group,
        gate=wired.gates.guards,
        probe_s=parts.config.guard.probe_s,
        probe_sender=probe_sender,
        routes_of=lambda value: preview(value, routes.naming).plan,
        own_orders=wired.shared.own_orders,
    )
    listener = ResumeListener(
        transactions=transactions,
        clock=clock,
        group=group,
        routes=routes,
        table=wired.dispatching.table,
    )
    call_up = CallUpWalk(
        transactions=transactions,
        clock=clock,
        group=group,
        routes=routes,
        knows_type=choices.knows_type,
        is_awake=wired.gates.types.is_awake,
        own_orders=wired.shared.own_orders,
    )
    loops = (keeper.run, probe_sender.run, listener.run, call_up.run)
    return _RouteDuties(keeper, call_up, loops)


def _make_lock_loop(locks: ResourceLocks, clock: Clock) -> DutyLoop:
    """Return the loop of the locks; it waits by itself while there is nothing to do."""
    duty = Duty(name="taking and giving back locks", work=locks.run_once, clock=clock)
    return partial(repeat, (duty,), partial(clock.sleep, 0.0))


def _make_hook_loops(choices: AgentChoices, runner: HookRunner) -> Sequence[DutyLoop]:
    """Return the loop that runs hooks; none if the settings have no hooks and cannot change."""
    return (runner.run,) if runner.kinds or choices.rereading is not None else ()


def _make_reporter(choices: AgentChoices, wired: WiredParts) -> Reporter:
    return Reporter(
        form=choices.instruments.form,
        latest=choices.instruments.latest,
        admission=wired.executing.admission,
        slots=wired.executing.slots,
        locks=wired.gates.locks,
        routes=choices.providers.routes,
        sources=list(choices.handles.by_destination.values()),
        topics=choices.parts.topics,
        counts=wired.shared.counts,
        clock=wired.shared.clock,
    )


def _make_loop_watch(choices: AgentChoices, executing: Execution) -> Sequence[DutyLoop]:
    watch = choices.instruments.watch
    return () if watch is None else (lambda: watch.run(executing.slots.work_of),)


def _make_quota_duties(choices: AgentChoices, wired: WiredParts) -> Sequence[DutyLoop]:
    return make_quota_duties(
        choices.parts,
        gate=wired.gates.quotas,
        store=choices.providers.grant_store,
        admission=wired.executing.admission,
        dispatching=wired.dispatching,
        granted=wired.shared.wakeups.claim.set,
        jitter=choices.jitter,
        is_live=choices.rereading is not None,
    )


def _make_reread_duties(
    choices: AgentChoices, wired: WiredParts, reporter: Reporter, of_routes: _RouteDuties
) -> Sequence[DutyLoop]:
    """Return the duties that read the settings again."""
    how, handling = choices.rereading, wired.handling
    if how is None:
        return ()
    live = LiveSettings(
        parts=choices.parts,
        routes=choices.providers.routes,
        table=wired.dispatching.table,
        route_clients=choices.providers.route_clients,
        handlers=handling.handlers,
        load_handlers=handling.load_handlers,
        hooks=handling.hooks,
        load_hooks=handling.load_hooks,
        tools=handling.tools,
        quotas=wired.gates.quotas.configured,
        intake=wired.intake,
        keeper=of_routes.keeper,
        unknown_types=wired.gates.unknown_types,
        type_limits=wired.gates.types,
        call_up=of_routes.call_up,
        reporter=reporter,
        form=how.form,
        claim_s=wired.shared.claim_s,
    )
    executor = choices.workers.reading
    return make_reread_duties(live, how, counts=wired.shared.counts, executor=executor)
