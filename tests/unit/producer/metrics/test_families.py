"""Metrics of a group: closed labels, few series, and agents' reports in the worst light."""

from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from docllm.agent.reporting.metrics import AgentMetrics
from docllm.producer.ledger.status import group_sums
from docllm.producer.ledger.status.agent_status import AgentState, AgentStatus
from docllm.producer.ledger.status.group_status import GroupStatus
from docllm.producer.ledger.status.group_sums import OTHER, GroupSums
from docllm.producer.ledger.status.releases import Comparison, ReleaseStatus, ReleaseSums
from docllm.producer.ledger.status.snapshot import Snapshot
from docllm.producer.ledger.waiting_rows import LedgerWait
from docllm.producer.metrics.families import Reading, families
from docllm.producer.metrics.family import RouteLabels
from docllm.producer.metrics.scale import Scale, ScaleBound
from docllm.producer.ports import Backlog
from docllm.producer.text.agent_sentences import Sentence
from docllm.producer.text.urgency import Urgency
from docllm.schemas.agent_report import AgentReport, RouteFacts
from docllm.schemas.ledger.sql import NEVER_TIME
from docllm.schemas.ledger.tables import metadata
from docllm.schemas.task.failures import UNTRIED, Disposition, ErrorClass
from docllm.schemas.task.states import Status
from docllm.schemas.task.waits import DEAD, WaitReason

ROUTES = RouteLabels(["fast"])
ONE = Scale(desired=1, because=ScaleBound.NEED, need=1, quota=None, partitions=None)
NOTHING = Snapshot(
    status=GroupStatus(group="g", ledger="ledger", agents=(), batches=(), orders=0),
    sums=GroupSums(),
    oldest_due_s={},
    replaying=Counter(),
)


def shown(snapshot: Snapshot, **of_reading: Any) -> dict[tuple[str, ...], float]:
    """Return each sample by its name and labels."""
    reading = Reading(snapshot, 1000.0, 0.5, **of_reading)
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families(reading, ROUTES, ONE)
        for sample in family.samples
    }


def agent(number: int, *routes: RouteFacts, **report: Any) -> AgentStatus:
    of_agent = AgentReport(routes=routes, **report)
    return AgentStatus(number, f"a{number}", AgentState.ALIVE, 0.5, report=of_agent)


def with_agents(*agents: AgentStatus) -> Snapshot:
    return replace(NOTHING, status=replace(NOTHING.status, agents=agents))


def test_each_family_has_one_name_and_a_text() -> None:
    """Prometheus refuses a page that has a family twice."""
    found: list[Metric] = list(families(Reading(NOTHING, 1.0, 0.1), ROUTES, ONE))
    names = [family.name for family in found]
    assert len(names) == len(set(names))
    assert all(family.documentation.endswith(".") for family in found)
    assert all(name.startswith("docllm_") for name in names)


def test_the_page_for_operators_has_each_metric() -> None:
    """A metric that nobody describes is one that nobody uses."""
    page = Path(__file__).parents[4].joinpath("docs/how-to/metrics.md").read_text()
    of_agent = AgentMetrics(group="g", routes=(), counters=(), gauges=()).text().decode()
    found = [
        *families(Reading(NOTHING, 1.0, 0.1), ROUTES, ONE),
        *text_string_to_metric_families(of_agent),
    ]
    ours = [family for family in found if family.name.startswith("docllm_")]
    names = [family.name + "_total" * (family.type == "counter") for family in ours]
    assert [name for name in names if name not in page] == []


def test_the_page_for_operators_has_each_outcome_of_attempts() -> None:
    """Alerts and panels select attempts and costs by these values."""
    page = Path(__file__).parents[4].joinpath("docs/how-to/metrics.md").read_text()
    row = " ".join(line for line in page.splitlines() if "{route, outcome" in line)

    outcomes = {*group_sums._OUTCOME_BY_STATE.values(), str(ErrorClass.RELEASED)}
    assert [outcome for outcome in sorted(outcomes) if f"`{outcome}`" not in row] == []


def test_open_tasks_are_those_that_are_not_final() -> None:
    """A replayed task is open again; how often tasks ended does not fall."""
    sums = GroupSums(
        loaded=10,
        replayed=1,
        ended=Counter({Status.SUCCEEDED: 4, Status.DEAD: 2}),
        final=Counter({Status.SUCCEEDED: 4, Status.DEAD: 1}),
        kept=Counter({Status.SUCCEEDED: 3, Status.DEAD: 1}),
    )
    found = shown(replace(NOTHING, sums=sums))
    assert found["docllm_tasks_open", "g"] == 5
    assert found["docllm_tasks", "g", "pending"] == 5
    assert found["docllm_tasks", "g", "succeeded"] == 3
    assert found["docllm_tasks_ended_total", "g", "dead"] == 2
    assert found["docllm_dead_letters", "g"] == 1


def test_a_route_is_shown_as_bad_as_the_agent_sees_it_that_sees_it_worst() -> None:
    """One parked agent is a reason to act, though others still run."""
    found = shown(
        with_agents(
            agent(1, RouteFacts("fast", "open"), slots=4, busy={"fast": 2}),
            agent(2, RouteFacts("fast", "parked", "AUTH", "2026-01-31T08:00:00+00:00"), slots=4),
        )
    )
    assert [key for key in found if key[0] == "docllm_route_state"] == [
        ("docllm_route_state", "g", "fast", "parked", "AUTH")
    ]
    assert found["docllm_route_since_seconds", "g", "fast"] == 1769846400
    assert found["docllm_slots", "g"] == 8
    assert found["docllm_slots_busy", "g", "fast"] == 2


def test_what_agents_invent_makes_no_series() -> None:
    """Whoever may write to the ledger can write any report."""
    wild = [
        agent(
            number,
            *(RouteFacts(f"r{number}-{n}", f"state{n}", f"CLASS{n}", "no time") for n in range(20)),
            busy={f"r{number}-{n}": 1 for n in range(20)},
        )
        for number in range(50)
    ]
    calm = len(shown(with_agents()))
    assert len(shown(with_agents(*wild))) <= calm + 5


def test_an_exporter_has_less_than_2000_series_whatever_strangers_name() -> None:
    """The closed sets are bounded as a whole: every route fails in every way."""
    routes = RouteLabels([f"configured {number}" for number in range(1000)])
    labels = {routes.label(f"route {number}") for number in range(100_000)}
    labels |= {routes.label(f"configured {number}") for number in range(1000)}
    labels |= {routes.label("")}
    classes = {*ErrorClass, OTHER}
    ends = ("snoozed", "retried", "dead")
    attempts = [(route, "succeeded", "") for route in labels]
    attempts += product(labels, ends, classes - UNTRIED)
    sums = GroupSums(
        dead=Counter(product(classes, (*Disposition, OTHER))),
        attempts=Counter(attempts),
        tokens=Counter(product(labels, ("in", "cached", "out"))),
        cost_micro=Counter(product(labels, ("succeeded", "cancelled", *ends))),
    )
    agents = [
        agent(
            number,
            *(RouteFacts(label, "parked", "AUTH", "2026-01-31T08:00:00+00:00") for label in labels),
            busy=dict.fromkeys(labels, 1),
        )
        for number in range(3)
    ]
    backlogs = {destination: Backlog(1, 1, {}) for destination in ("tasks", "inbox", "retry.1h")}
    snapshot = replace(with_agents(*agents), sums=sums, rows=dict.fromkeys(metadata.tables, 1))
    reading = Reading(snapshot, 1000.0, 0.1, backlogs)
    shown_series = sum(len(family.samples) for family in families(reading, routes, ONE))
    assert 1000 < shown_series < 2000


def test_reasons_to_wait_are_a_closed_set() -> None:
    """Alerts ask for them by name, so each is there even if it does not hold."""
    waits = (Sentence(Urgency.GUARD_RAISED, ("guard", "b"), "guard"),)
    found = shown(replace(NOTHING, status=replace(NOTHING.status, waits=waits)))
    reasons = {key[2]: value for key, value in found.items() if key[0] == "docllm_group_waiting"}
    assert reasons == {
        "guard_raised": 1,
        "route_parked": 0,
        "route_limited": 0,
        "type_asleep": 0,
        "lock_held": 0,
        "time": 0,
    }


@pytest.mark.parametrize(
    ("reason", "key", "on_purpose"),
    [
        (WaitReason.TIME, "", 1),
        (WaitReason.CHILDREN, DEAD, 1),
        (WaitReason.CHILDREN, "", 0),
        (WaitReason.ROUTE, "default", 0),
    ],
)
def test_work_that_waits_for_a_time_or_a_replay_waits_on_purpose(
    reason: WaitReason, key: str, on_purpose: int
) -> None:
    """No alert says that it stands still."""
    waits = (LedgerWait(reason, key, 1, 60.0, NEVER_TIME),)
    found = shown(replace(NOTHING, status=replace(NOTHING.status, waiting=waits)))

    assert found["docllm_group_waiting", "g", "time"] == on_purpose
    assert found["docllm_ledger_waiting_tasks", "g", reason] == 1


def test_the_time_of_the_last_archive_is_shown_once_there_is_one() -> None:
    """The metric is a time, so it stays right while nobody reads the ledger."""
    name = "docllm_archive_last_success_timestamp_seconds"
    assert (name, "g") not in shown(NOTHING)
    assert shown(replace(NOTHING, archived_s=40.0))[name, "g"] == 960


def test_a_backlog_has_an_age_only_if_there_is_one() -> None:
    """An empty topic is 0 s old."""
    backlogs = {"tasks": Backlog(3, 990_000, {}), "inbox": Backlog(0, None, {})}
    found = shown(NOTHING, backlogs=backlogs)
    assert found["docllm_topic_oldest_seconds", "g", "tasks"] == 10
    assert found["docllm_topic_oldest_seconds", "g", "inbox"] == 0
    assert found["docllm_topic_lag_records", "g", "tasks"] == 3


def test_releases_are_counted_and_compared() -> None:
    """A label is a stranger's text; only the few releases that the ledger names have series."""
    label = 'a"\n{}'
    sums = ReleaseSums(90, 10, 2_500_000)
    bad = ReleaseStatus(label, ReleaseSums(), sums, Comparison(100, 0.1, 0.02, 9.0))
    status = replace(NOTHING.status, releases=(bad, replace(bad, name="1.0", comparison=None)))

    found = shown(replace(NOTHING, status=status))

    assert found["docllm_release_attempts_total", "g", label, "succeeded"] == 90
    assert found["docllm_release_attempts_total", "g", label, "failed"] == 10
    assert found["docllm_release_cost_units_total", "g", label] == 2.5
    assert found["docllm_release_worse", "g", label] == 1
    assert found["docllm_release_worse", "g", "1.0"] == 0


def test_routes_of_the_settings_are_labels_and_others_share_one() -> None:
    """A task without a route is one of the default route."""
    routes = RouteLabels(["fast", "slow"])
    assert [routes.label(name) for name in ("fast", "default", "", "x" * 64)] == [
        "fast",
        "default",
        "default",
        "_other",
    ]


def test_there_are_never_more_than_a_few_labels() -> None:
    """Settings with hundreds of routes keep the labels of the first ones."""
    routes = RouteLabels([f"r{number}" for number in range(300)], most=3)
    assert {routes.label(f"r{number}") for number in range(300)} == {"r0", "r1", "_other"}


def test_an_unknown_cost_has_no_series() -> None:
    """A counter cannot say that nothing is known; one that is partly known counts that part."""
    known, unknown = ("fast", "succeeded"), ("slow", "succeeded")
    costs = Counter({known: 5_000_000, unknown: 0})
    sums = GroupSums(cost_micro=costs, unpriced=Counter({known: 1, unknown: 2}))
    released = ReleaseStatus("1.0", ReleaseSums(), ReleaseSums(9, 1, 0, 10))
    status = replace(NOTHING.status, releases=(released,))

    found = shown(replace(NOTHING, sums=sums, status=status))
    assert {key: value for key, value in found.items() if "_cost_units_total" in key[0]} == {
        ("docllm_cost_units_total", "g", *known): 5
    }
