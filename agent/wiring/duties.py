"""Builds the duties that run beside an agent's records, from the parts that they look after.

Tested by tests/integration/test_reread.py and tests/simulation/test_simulation.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from agent.execution.lock_requests import ResourceLocks
from agent.hooks.runner import HookRunner
from agent.inflight.partitions import Partitions
from agent.intake.acceptance import Intake
from agent.maintenance.call_up_walk import CallUpWalk
from agent.maintenance.duty import Duty, DutyLoop, repeat
from agent.maintenance.monitoring.reporter import Reporter
from agent.maintenance.rounds import repair_loops
from agent.maintenance.routes.guard_keeper import GuardKeeper
from agent.maintenance.routes.resume_listener import ResumeListener
from agent.ports import Clock
from agent.routes.names import preview
from agent.routes.probe_sender import ProbeSender
from agent.wiring.choices import Chosen
from agent.wiring.handlers import Handling
from agent.wiring.live_settings import LiveSettings, reread_duties
from agent.wiring.quotas import quota_duties
from agent.wiring.record_path import Common, Dispatch, Execution, Gates
from producer.publishing.relay import Relay
from producer.replay.applier import make_applier


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The parts of an agent that are there before its duties."""

    relay: Relay
    common: Common
    gates: Gates
    handling: Handling
    executing: Execution
    dispatching: Dispatch
    inbox_partitions: Partitions
    intake: Intake
    hook_runner: HookRunner


def duties(chosen: Chosen, built: Built) -> Sequence[DutyLoop]:
    """Build the duties of an agent."""
    of_routes = _route_duties(chosen, built)
    reporter = _reporter(chosen, built)
    return (
        *_repairs(chosen, built),
        *chosen.duties,
        *of_routes.loops,
        built.common.memory.run,
        _lock_loop(built.gates.locks, built.common.clock),
        *_hook_loops(chosen, built.hook_runner),
        reporter.run,
        *_watches(chosen, built.executing),
        *_quotas(chosen, built),
        *_rereading(chosen, built, reporter, of_routes),
    )


def _repairs(chosen: Chosen, built: Built) -> Sequence[DutyLoop]:
    common, claimer = built.common, built.dispatching.claimer
    return repair_loops(
        chosen.parts,
        relay=built.relay,
        applier=make_applier(
            chosen.parts,
            relay=built.relay,
            apart=chosen.workers.apart,
            failed=common.memory.note,
        ),
        heartbeat=chosen.registration.heartbeat,
        locks=chosen.registration.locks,
        lost_records=common.lost_records,
        ask_about_tasks_of=claimer.ask_about_tasks_of,
        ask_about_batches=claimer.ask_about_batches,
        partitions=(built.dispatching.partitions, built.inbox_partitions),
    )


@dataclass(frozen=True, slots=True)
class _RouteDuties:
    """The duties for guards and routes."""

    keeper: GuardKeeper
    call_up: CallUpWalk
    loops: Sequence[DutyLoop]


def _route_duties(chosen: Chosen, built: Built) -> _RouteDuties:
    parts, routes = chosen.parts, chosen.providers.routes
    transactions, clock, group = parts.transactions, parts.clock, parts.topics.group
    probe_sender = ProbeSender(
        routes=routes, route_clients=chosen.providers.route_clients, clock=clock
    )
    keeper = GuardKeeper(
        transactions=transactions,
        clock=clock,
        group=group,
        gate=built.gates.guards,
        probe_s=parts.config.guard.probe_s,
        probe_sender=probe_sender,
        routes_of=lambda value: preview(value, routes.naming).plan,
        publishing=built.common.publishing,
    )
    listener = ResumeListener(transactions=transactions, clock=clock, group=group, routes=routes)
    call_up = CallUpWalk(
        transactions=transactions,
        clock=clock,
        group=group,
        routes=routes,
        knows_type=chosen.knows_type,
        is_awake=built.gates.types.is_awake,
        publishing=built.common.publishing,
    )
    loops = (keeper.run, probe_sender.run, listener.run, call_up.run)
    return _RouteDuties(keeper, call_up, loops)


def _lock_loop(locks: ResourceLocks, clock: Clock) -> DutyLoop:
    """Return the loop of the locks; it waits by itself while there is nothing to do."""
    duty = Duty(name="taking and giving back locks", work=locks.run_once, clock=clock)
    return partial(repeat, (duty,), partial(clock.sleep, 0.0))


def _hook_loops(chosen: Chosen, runner: HookRunner) -> Sequence[DutyLoop]:
    """Return the loop that runs hooks; none if the settings have no hooks and cannot change."""
    return (runner.run,) if runner.kinds or chosen.rereading is not None else ()


def _reporter(chosen: Chosen, built: Built) -> Reporter:
    return Reporter(
        form=chosen.instruments.form,
        latest=chosen.instruments.latest,
        admission=built.executing.admission,
        slots=built.executing.slots,
        locks=built.gates.locks,
        routes=chosen.providers.routes,
        sources=list(chosen.handles.by_destination.values()),
        topics=chosen.parts.topics,
        counts=built.common.counts,
        clock=built.common.clock,
    )


def _watches(chosen: Chosen, executing: Execution) -> Sequence[DutyLoop]:
    watch = chosen.instruments.watch
    return () if watch is None else (lambda: watch.run(executing.slots.work_of),)


def _quotas(chosen: Chosen, built: Built) -> Sequence[DutyLoop]:
    return quota_duties(
        chosen.parts,
        gate=built.gates.quotas,
        store=chosen.providers.grant_store,
        admission=built.executing.admission,
        dispatching=built.dispatching,
        granted=built.common.wakeups.claim.set,
        jitter=chosen.jitter,
        is_live=chosen.rereading is not None,
    )


def _rereading(
    chosen: Chosen, built: Built, reporter: Reporter, of_routes: _RouteDuties
) -> Sequence[DutyLoop]:
    """Return the duties that read the settings again."""
    how, handling = chosen.rereading, built.handling
    if how is None:
        return ()
    live = LiveSettings(
        parts=chosen.parts,
        routes=chosen.providers.routes,
        route_clients=chosen.providers.route_clients,
        handlers=handling.handlers,
        load_handlers=handling.load_handlers,
        hooks=handling.hooks,
        load_hooks=handling.load_hooks,
        tools=handling.tools,
        quotas=built.gates.quotas.configured,
        intake=built.intake,
        keeper=of_routes.keeper,
        call_up=of_routes.call_up,
        reporter=reporter,
        form=how.form,
        claim_s=built.common.claim_s,
    )
    executor = chosen.workers.reading
    return reread_duties(live, how, counts=built.common.counts, executor=executor)
