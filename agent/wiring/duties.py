"""Builds the duties that run beside an agent's records, from the parts that they look after."""

from collections.abc import Sequence
from functools import partial

from docllm.agent.hooks.runner import HookRunner
from docllm.agent.maintenance.duty import Duty, DutyLoop
from docllm.agent.maintenance.monitoring.reporter import Reporter
from docllm.agent.maintenance.rounds import repair_loops
from docllm.agent.maintenance.waits.guard_keeper import GuardKeeper
from docllm.agent.maintenance.waits.resume_listener import CHECK_EVERY_S as LISTEN_EVERY_S
from docllm.agent.maintenance.waits.resume_listener import ResumeListener
from docllm.agent.maintenance.waits.waker import CHECK_EVERY_S as WAKE_EVERY_S
from docllm.agent.maintenance.waits.waker import Waker
from docllm.agent.routes.names import plan_of_body
from docllm.agent.routes.probe_sender import ProbeSender
from docllm.agent.wiring.group_rules import make_group_rules_duty
from docllm.agent.wiring.live_settings import LiveSettings, make_reread_duties
from docllm.agent.wiring.parts import AgentParts
from docllm.agent.wiring.quotas import make_quota_duties
from docllm.producer.replay.applier import make_applier


def make_duties(made: AgentParts, hooks: HookRunner) -> Sequence[DutyLoop]:
    """Build the duties of an agent."""
    choices = made.choices
    parts, routes, watch = choices.parts, choices.routes, choices.watch
    probe_sender = ProbeSender(routes=routes, route_clients=choices.route_clients, clock=made.clock)
    keeper = GuardKeeper(
        transactions=parts.transactions,
        clock=made.clock,
        group=made.group,
        gate=made.guards,
        probe_s=parts.config.guard_probe_s,
        probe_sender=probe_sender,
        routes_of=lambda value: plan_of_body(value, routes.naming),
        own_orders=made.own_orders,
    )
    listener = ResumeListener(
        transactions=parts.transactions,
        clock=made.clock,
        group=made.group,
        routes=routes,
        table=made.path.table,
    )
    waker = Waker(
        transactions=parts.transactions,
        clock=made.clock,
        group=made.group,
        routes=routes,
        knows_type=made.knows_type,
        is_awake=made.type_hours.is_awake,
        own_orders=made.own_orders,
    )
    reporter = Reporter(
        form=choices.form,
        latest=choices.latest,
        admission=made.admission,
        slots=made.slots,
        locks=made.locks,
        routes=routes,
        sources=[*choices.sources.values(), *((choices.inbox,) if choices.inbox else ())],
        topics=parts.topics,
        counts=choices.counts,
        clock=made.clock,
    )
    waking = Duty(name="calling up waiting tasks", work=waker.check, clock=made.clock)
    listening = Duty(name="looking for resumed routes", work=listener.check, clock=made.clock)
    locks = Duty(name="taking and giving back locks", work=made.locks.run_once, clock=made.clock)
    can_change = choices.rereading is not None
    live = LiveSettings(made, keeper=keeper, waker=waker, reporter=reporter)
    return (
        *_repair_loops(made),
        *choices.duties,
        keeper.run,
        probe_sender.run,
        listening.every(LISTEN_EVERY_S),
        waking.every(WAKE_EVERY_S),
        made.memory.run,
        locks.every(0.0),  # it waits by itself while there is nothing to do
        # What the settings do not name now will be there only if they can change.
        *((hooks.run,) if hooks.kinds or can_change else ()),
        *((make_group_rules_duty(parts),) if parts.config.dead_on_loss or can_change else ()),
        reporter.run,
        *(() if watch is None else (partial(watch.run, made.slots.work_of),)),
        *make_quota_duties(made),
        *make_reread_duties(live),
    )


def _repair_loops(made: AgentParts) -> Sequence[DutyLoop]:
    choices, claimer = made.choices, made.path.claimer
    return repair_loops(
        choices.parts,
        relay=made.relay,
        applier=make_applier(
            choices.parts, relay=made.relay, apart=choices.apart, failed=made.memory.note
        ),
        heartbeat=choices.heartbeat,
        locks=choices.locks,
        lost_records=made.path.lost_records,
        ask_about_tasks_of=claimer.ask_about_tasks_of,
        ask_about_batches=claimer.ask_about_batches,
        partitions=(made.path.partitions, made.inbox_partitions),
        resets=choices.counts.resets,
    )
