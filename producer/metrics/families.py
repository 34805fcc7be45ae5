"""Turns a snapshot of a group into families of metrics.

Counters come from sums that never fall. Gauges show the present state.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from prometheus_client.metrics_core import Metric

from docllm.producer.ledger.status.agent_status import AgentState, AgentStatus
from docllm.producer.ledger.status.group_sums import OTHER
from docllm.producer.ledger.status.snapshot import Snapshot
from docllm.producer.metrics.family import Labels, RouteLabels, gauge
from docllm.producer.metrics.scale import Scale, ScaleBound
from docllm.producer.metrics.task_families import of_attempts, of_releases, of_tasks
from docllm.producer.ports import Backlog
from docllm.producer.text.urgency import Urgency
from docllm.schemas.agent_report import RouteFacts
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.guard import GuardCause
from docllm.schemas.task.route_state import RouteState
from docllm.schemas.task.waits import DEAD, WaitReason

# Work waits on purpose; alerts about work that stands still leave it alone. While it waits for a
# route, more agents may still help: for what they cannot, see `exporter.MORE_AGENTS_WOULD_WAIT`.
ON_PURPOSE = (
    Urgency.GUARD_RAISED,
    Urgency.ROUTE_PARKED,
    Urgency.ROUTE_LIMITED,
    Urgency.TYPE_ASLEEP,
    Urgency.LOCK_HELD,
)
FOR_TIME = "time"  # all open tasks wait in the ledger, some of them for a time
_CAUSES = frozenset(map(str, GuardCause))


_WORST_FIRST = (RouteState.PARKED, RouteState.STOPPED, RouteState.OPEN)
_CLASSES = frozenset(map(str, ErrorClass))


def of_agents(agents: Iterable[AgentStatus], group: str, routes: RouteLabels) -> Iterator[Metric]:
    """Yield what the agents report: their states, slots and routes."""
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
    yield gauge(
        "docllm_agents",
        "Agents by state.",
        ("group", "state"),
        {(group, state): count for state, count in of_state.items()},
    )
    yield gauge("docllm_slots", "Slots of the agents alive.", ("group",), {(group,): slots})
    yield gauge(
        "docllm_slots_busy",
        "Slots in use.",
        ("group", "route"),
        {(group, route): count for route, count in busy.items()},
    )
    yield gauge(
        "docllm_route_state",
        "1 for the worst state of a route in any agent, with the class of error that caused it.",
        ("group", "route", "state", "reason"),
        {(group, route, *_state(facts)): 1 for route, facts in worst.items()},
    )
    yield gauge(
        "docllm_route_since_seconds",
        "Unix time since when a route takes no calls: it stopped, was parked or pauses.",
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


@dataclass(frozen=True, slots=True)
class Reading:
    """What one reading found: the ledger's snapshot, and the bus's backlogs by destination.

    `at_s` is Unix time, `took_s` how long the reading took. A bus that does not answer has no
    backlogs, and no known `partitions` of the topic of tasks. `order_seen_s` is how long the oldest
    publish order has been seen, 0 if there is none.
    """

    snapshot: Snapshot
    at_s: float
    took_s: float
    backlogs: Mapping[str, Backlog] = field(default_factory=dict)
    partitions: int | None = None
    order_seen_s: float = 0.0


def families(reading: Reading, routes: RouteLabels, scaled: Scale | None) -> Iterator[Metric]:
    """Yield the metrics of a group; without `scaled`, all but the desired number of agents."""
    yield from _of_reading(reading)
    yield from of_tasks(reading.snapshot)
    yield from _of_tables(reading)
    yield from of_attempts(reading.snapshot)
    yield from of_releases(reading.snapshot.status)
    yield from of_agents(reading.snapshot.status.agents, reading.snapshot.status.group, routes)
    yield from _of_waits(reading)
    yield from _of_bus(reading)
    if scaled is not None:
        yield from _of_scale(reading.snapshot.status.group, scaled)


def _of_reading(reading: Reading) -> Iterator[Metric]:
    group = reading.snapshot.status.group
    yield gauge(
        "docllm_snapshot_timestamp_seconds",
        "Unix time of the reading that these metrics show.",
        ("group",),
        {(group,): reading.at_s},
    )
    yield gauge(
        "docllm_snapshot_duration_seconds",
        "How long the reading took.",
        ("group",),
        {(group,): reading.took_s},
    )


def _of_tables(reading: Reading) -> Iterator[Metric]:
    group = reading.snapshot.status.group
    archived_s = reading.snapshot.archived_s
    yield gauge(
        "docllm_archive_last_success_timestamp_seconds",
        "Unix time when an archive of the group was last verified.",
        ("group",),
        {} if archived_s is None else {(group,): reading.at_s - archived_s},
    )
    yield gauge(
        "docllm_rows",
        "Estimate of the rows in a table of the ledger, of all groups.",
        ("table",),
        {(table,): rows for table, rows in reading.snapshot.rows.items()},
    )


def _all_wait(reading: Reading) -> bool:
    """Return whether all open tasks wait in the ledger, some for a time or for a replay."""
    waits = reading.snapshot.status.waiting
    any_on_purpose = any(
        wait.reason == WaitReason.TIME or (wait.reason, wait.key) == (WaitReason.CHILDREN, DEAD)
        for wait in waits
    )
    return any_on_purpose and reading.snapshot.waiting >= reading.snapshot.sums.open


def _of_waits(reading: Reading) -> Iterator[Metric]:
    snapshot, status = reading.snapshot, reading.snapshot.status
    urgencies = {wait.urgency for wait in status.waits}
    yield gauge(
        "docllm_group_waiting",
        "1 if work waits on purpose for this reason.",
        ("group", "reason"),
        {
            **{(status.group, kind.code): int(kind in urgencies) for kind in ON_PURPOSE},
            (status.group, FOR_TIME): int(_all_wait(reading)),
        },
    )
    in_ledger = Counter[str]()
    for wait in status.waiting:
        in_ledger[wait.reason] += wait.tasks
    yield gauge(
        "docllm_ledger_waiting_tasks",
        "Tasks that wait in the ledger; of the 10,000 that are due first.",
        ("group", "reason"),
        {(status.group, reason): in_ledger[reason] for reason in WaitReason},
    )
    causes = Counter(guard.cause if guard.cause in _CAUSES else OTHER for guard in status.guards)
    yield gauge(
        "docllm_guards_raised",
        "Guards that hold tasks back.",
        ("group", "cause"),
        {(status.group, cause): causes[cause] for cause in sorted({*_CAUSES, *causes})},
    )
    yield gauge(
        "docllm_oldest_due_seconds",
        "How long the task that has waited longest in a state has been due.",
        ("group", "state"),
        {(status.group, state.name.lower()): s for state, s in snapshot.oldest_due_s.items()},
    )
    yield gauge(
        "docllm_publish_orders",
        "Orders to publish records that have not been carried out.",
        ("group",),
        {(status.group,): status.orders},
    )
    yield gauge(
        "docllm_publish_order_oldest_seconds",
        "For how long the exporter has seen the oldest of these orders.",
        ("group",),
        {(status.group,): reading.order_seen_s},
    )


def _of_bus(reading: Reading) -> Iterator[Metric]:
    group = reading.snapshot.status.group
    yield gauge(
        "docllm_topic_lag_records",
        "Records that no agent has finished; in tiers they wait by design.",
        ("group", "topic"),
        {(group, topic): backlog.lag for topic, backlog in reading.backlogs.items()},
    )
    yield gauge(
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
    yield gauge(
        "docllm_agents_desired",
        "How many agents the group can use now.",
        ("group",),
        {(group,): scaled.desired},
    )
    yield gauge(
        "docllm_agents_desired_bound",
        "1 for what decides that number.",
        ("group", "by"),
        {(group, bound): int(bound is scaled.because) for bound in ScaleBound},
    )
