"""The metrics of a group's agents: states, slots, and their routes."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from prometheus_client.metrics_core import Metric

from docllm.producer.ledger.status.agent_status import AgentState, AgentStatus
from docllm.producer.ledger.status.group_sums import OTHER
from docllm.producer.metrics.family import Labels, gauge
from docllm.producer.metrics.route_labels import RouteLabels
from docllm.schemas.agent_report import RouteFacts
from docllm.schemas.task.failures import ErrorClass
from docllm.schemas.task.route_state import RouteState

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
