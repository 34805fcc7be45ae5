"""Turns a snapshot of a group into families of metrics.

Counters come from sums that never fall. Gauges show the present state.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from producer.ledger.dead_letters.replay_runs import ItemState
from producer.ledger.status.agent_status import AgentState, AgentStatus
from producer.ledger.status.group_status import GroupStatus
from producer.ledger.status.group_sums import OTHER
from producer.ledger.status.snapshot import Snapshot
from producer.metrics.route_labels import RouteLabels
from producer.metrics.scale import Bound, Scale
from producer.ports import Backlog
from producer.text.urgency import Urgency
from schemas.task.agent_report import RouteFacts
from schemas.task.failures import ErrorClass
from schemas.task.guard import GuardCause
from schemas.task.route_state import RouteState
from schemas.task.states import FINAL, Status

# Work waits on purpose; alerts about work that stands still leave it alone.
WAITS = (
    Urgency.GUARD_RAISED,
    Urgency.ROUTE_PARKED,
    Urgency.ROUTE_LIMITED,
    Urgency.TYPE_ASLEEP,
    Urgency.LOCK_HELD,
)
_WORST_FIRST = (RouteState.PARKED, RouteState.STOPPED, RouteState.OPEN)
_CLASSES = frozenset(map(str, ErrorClass))
_CAUSES = frozenset(map(str, GuardCause))
_MICRO = 1e6

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look found: the ledger's snapshot, and the bus's backlogs by destination.

    `at_s` is Unix time, `took_s` how long the look took. A bus that does not answer has no
    backlogs, and no known `partitions` of the topic of tasks. `order_seen_s` is how long the oldest
    publish order has been seen, 0 if there is none.
    """

    snapshot: Snapshot
    at_s: float
    took_s: float
    backlogs: Mapping[str, Backlog] = field(default_factory=dict)
    partitions: int | None = None
    order_seen_s: float = 0.0


def families(reading: Reading, routes: RouteLabels, scaled: Scale) -> Iterator[Metric]:
    """Yield the metrics of a group."""
    yield from _of_reading(reading)
    yield from _of_tasks(reading.snapshot)
    yield from _of_tables(reading)
    yield from _of_attempts(reading.snapshot)
    yield from _of_releases(reading.snapshot.status)
    yield from _of_agents(reading.snapshot.status.agents, reading.snapshot.status.group, routes)
    yield from _of_waits(reading)
    yield from _of_bus(reading)
    yield from _of_scale(reading.snapshot.status.group, scaled)


def _of_reading(reading: Reading) -> Iterator[Metric]:
    group = reading.snapshot.status.group
    yield _gauge(
        "docllm_snapshot_timestamp_seconds",
        "Unix time of the reading that these metrics show.",
        ("group",),
        {(group,): reading.at_s},
    )
    yield _gauge(
        "docllm_snapshot_duration_seconds",
        "How long the reading took.",
        ("group",),
        {(group,): reading.took_s},
    )


def _of_tasks(snapshot: Snapshot) -> Iterator[Metric]:
    group, sums = snapshot.status.group, snapshot.sums
    counts: Counter[str] = Counter()
    for batch in snapshot.status.batches:
        counts.update({name: batch.counts[name] for name in ("processing", "retrying")})
    of_state = {status: max(0, sums.kept[status]) for status in FINAL}
    of_state[Status.PROCESSING], of_state[Status.RETRYING] = (
        counts["processing"],
        counts["retrying"],
    )
    of_state[Status.PENDING] = max(0, sums.open - counts["processing"] - counts["retrying"])
    yield _gauge(
        "docllm_tasks",
        "Tasks by state, without those that were purged.",
        ("group", "state"),
        {(group, status.name.lower()): count for status, count in of_state.items()},
    )
    yield _gauge(
        "docllm_tasks_open", "Tasks that are not final.", ("group",), {(group,): sums.open}
    )
    yield _counter(
        "docllm_tasks_loaded", "Tasks that were loaded.", ("group",), {(group,): sums.loaded}
    )
    yield _counter(
        "docllm_tasks_replayed", "Replays of tasks.", ("group",), {(group,): sums.replayed}
    )
    yield _counter(
        "docllm_tasks_ended",
        "Tasks that became final, once more after each replay.",
        ("group", "state"),
        {(group, status.name.lower()): sums.ended[status] for status in FINAL},
    )
    yield _counter(
        "docllm_tasks_dead",
        "Tasks that were given up, once more after each replay.",
        ("group", "class", "disposition"),
        {(group, *key): count for key, count in sums.dead.items()},
    )
    yield _gauge(
        "docllm_dead_letters",
        "Tasks that are dead now, without those whose dead letters were purged.",
        ("group",),
        {(group,): max(0, sums.dead_letters)},
    )
    yield _gauge(
        "docllm_quarantined_records",
        "Records that are no tasks.",
        ("group",),
        {(group,): snapshot.quarantined},
    )
    yield _gauge(
        "docllm_replay_items",
        "Items of replays that have not ended.",
        ("group", "state"),
        {(group, state.name.lower()): snapshot.replaying[state] for state in ItemState},
    )


def _of_tables(reading: Reading) -> Iterator[Metric]:
    group = reading.snapshot.status.group
    archived_s = reading.snapshot.archived_s
    yield _gauge(
        "docllm_archive_last_success_timestamp_seconds",
        "Unix time when an archive of the group was last verified.",
        ("group",),
        {} if archived_s is None else {(group,): reading.at_s - archived_s},
    )
    yield _gauge(
        "docllm_rows",
        "Estimate of the rows in a table of the ledger, of all groups.",
        ("table",),
        {(table,): rows for table, rows in reading.snapshot.rows.items()},
    )


def _of_attempts(snapshot: Snapshot) -> Iterator[Metric]:
    group, sums = snapshot.status.group, snapshot.sums
    yield _counter(
        "docllm_attempts",
        "Attempts that ended, by route, outcome and class of error.",
        ("group", "route", "outcome", "class"),
        {(group, *key): count for key, count in sums.attempts.items()},
    )
    yield _counter(
        "docllm_calls_abandoned",
        "Attempts given up after a call, because their agent drained or lost its lease.",
        ("group", "route"),
        {(group, route): count for route, count in sums.abandoned.items()},
    )
    yield _counter(
        "docllm_tokens",
        "Tokens of calls; those of direction cached are part of those of in.",
        ("group", "route", "direction"),
        {(group, *key): count for key, count in sums.tokens.items()},
    )
    yield _counter(
        "docllm_cost_units",
        "Cost of calls in the currency of the prices, by what became of the attempt.",
        ("group", "route", "outcome"),
        {(group, *key): micro / _MICRO for key, micro in sums.cost_micro.items()},
    )


def _of_releases(status: GroupStatus) -> Iterator[Metric]:
    """Yield the releases that worked last; of the others there is no series."""
    group, releases = status.group, status.releases
    attempts: dict[Labels, float] = {
        (group, release.name, outcome): count
        for release in releases
        for outcome, count in (
            ("succeeded", release.total.succeeded),
            ("failed", release.total.failed),
        )
    }
    yield _counter(
        "docllm_release_attempts",
        "Attempts that succeeded, or failed and counted, of the releases that worked last.",
        ("group", "release", "outcome"),
        attempts,
    )
    yield _counter(
        "docllm_release_cost_units",
        "Cost of these attempts in the currency of the prices.",
        ("group", "release"),
        {(group, release.name): release.total.cost_micro / _MICRO for release in releases},
    )
    yield _gauge(
        "docllm_release_worse",
        "1 if a release fails more often than the others on the same routes in the same minutes.",
        ("group", "release"),
        {(group, release.name): int(release.is_worse) for release in releases},
    )


def _of_agents(agents: Iterable[AgentStatus], group: str, routes: RouteLabels) -> Iterator[Metric]:
    of_state, busy, slots = dict.fromkeys(map(str, AgentState), 0), Counter[str](), 0
    worst: dict[str, RouteFacts] = {}
    for agent in agents:
        of_state[agent.state] += 1
        if not agent.works or agent.report is None:
            continue
        slots += agent.report.slots
        for route, count in agent.report.busy.items():
            busy[routes.label(route)] += count
        for facts in agent.report.routes:
            label = routes.label(facts.name)
            if label not in worst or _badness(facts) < _badness(worst[label]):
                worst[label] = facts
    yield _gauge(
        "docllm_agents",
        "Agents by state.",
        ("group", "state"),
        {(group, state): count for state, count in of_state.items()},
    )
    yield _gauge("docllm_slots", "Slots of the agents alive.", ("group",), {(group,): slots})
    yield _gauge(
        "docllm_slots_busy",
        "Slots in use.",
        ("group", "route"),
        {(group, route): count for route, count in busy.items()},
    )
    yield _gauge(
        "docllm_route_state",
        "1 for the worst state of a route in any agent, with the class of error that caused it.",
        ("group", "route", "state", "reason"),
        {(group, route, *_state(facts)): 1 for route, facts in worst.items()},
    )
    yield _gauge(
        "docllm_route_since_seconds",
        "Unix time when a route stopped or was parked.",
        ("group", "route"),
        {
            (group, route): since_s
            for route, facts in worst.items()
            if (since_s := _unix(facts.since)) is not None
        },
    )


def _badness(facts: RouteFacts) -> int:
    states = list(map(str, _WORST_FIRST))
    return states.index(facts.state) if facts.state in states else len(states)


def _state(facts: RouteFacts) -> Labels:
    state = facts.state if facts.state in map(str, RouteState) else OTHER
    if not facts.error_class:
        return state, ""
    return state, facts.error_class if facts.error_class in _CLASSES else OTHER


def _unix(since: str) -> float | None:
    try:
        at = datetime.fromisoformat(since)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _of_waits(reading: Reading) -> Iterator[Metric]:
    snapshot, status = reading.snapshot, reading.snapshot.status
    urgencies = {wait.urgency for wait in status.waits}
    yield _gauge(
        "docllm_group_waiting",
        "1 if work waits on purpose for this reason.",
        ("group", "reason"),
        {(status.group, kind.code): int(kind in urgencies) for kind in WAITS},
    )
    causes = Counter(guard.cause if guard.cause in _CAUSES else OTHER for guard in status.guards)
    yield _gauge(
        "docllm_guards_raised",
        "Guards that hold tasks back.",
        ("group", "cause"),
        {(status.group, cause): causes[cause] for cause in sorted({*_CAUSES, *causes})},
    )
    yield _gauge(
        "docllm_oldest_due_seconds",
        "How long the task that has waited longest in a state has been due.",
        ("group", "state"),
        {(status.group, state.name.lower()): s for state, s in snapshot.oldest_due_s.items()},
    )
    yield _gauge(
        "docllm_publish_orders",
        "Orders to publish records that have not been carried out.",
        ("group",),
        {(status.group,): status.orders},
    )
    yield _gauge(
        "docllm_publish_order_oldest_seconds",
        "For how long the exporter has seen the oldest of these orders.",
        ("group",),
        {(status.group,): reading.order_seen_s},
    )


def _of_bus(reading: Reading) -> Iterator[Metric]:
    group = reading.snapshot.status.group
    yield _gauge(
        "docllm_topic_lag_records",
        "Records that no agent has finished; in tiers they wait by design.",
        ("group", "topic"),
        {(group, topic): backlog.lag for topic, backlog in reading.backlogs.items()},
    )
    yield _gauge(
        "docllm_topic_oldest_seconds",
        "Age of the oldest of these records.",
        ("group", "topic"),
        {
            (group, topic): max(0.0, reading.at_s - backlog.oldest_ms / 1000)
            if backlog.oldest_ms is not None
            else 0.0
            for topic, backlog in reading.backlogs.items()
        },
    )


def _of_scale(group: str, scaled: Scale) -> Iterator[Metric]:
    yield _gauge(
        "docllm_agents_desired",
        "How many agents the group can use now.",
        ("group",),
        {(group,): scaled.desired},
    )
    yield _gauge(
        "docllm_agents_desired_bound",
        "1 for what decides that number.",
        ("group", "by"),
        {(group, bound): int(bound is scaled.because) for bound in Bound},
    )


def _gauge(name: str, text: str, labels: Labels, values: Mapping[Labels, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for of_labels, value in values.items():
        family.add_metric(of_labels, value)
    return family


def _counter(name: str, text: str, labels: Labels, values: Mapping[Labels, float]) -> Metric:
    """Return a counter; the library shows `docllm_tasks_ended` as `docllm_tasks_ended_total`."""
    family = CounterMetricFamily(name, text, labels=labels)
    for of_labels, value in values.items():
        family.add_metric(of_labels, value)
    return family
