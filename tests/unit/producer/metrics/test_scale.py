"""How many agents are useful: what binds decides, and an autoscaler that follows does not flap."""

from collections import Counter
from math import ceil
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docllm.producer.ledger.status.agent_status import AgentState, AgentStatus
from docllm.producer.ledger.status.batch_status import BatchStatus
from docllm.producer.ledger.status.group_status import GroupStatus
from docllm.producer.ledger.status.group_sums import GroupSums
from docllm.producer.ledger.status.snapshot import Snapshot
from docllm.producer.metrics.exporter import ProviderAccounts, is_closed, learned_calls, workload
from docllm.producer.metrics.families import Reading
from docllm.producer.metrics.scale import (
    ProviderAccount,
    Scale,
    ScaleBound,
    ScaleLimits,
    Workload,
    scale,
)
from docllm.producer.ports import Backlog
from docllm.producer.text.agent_sentences import Sentence
from docllm.producer.text.urgency import Urgency
from docllm.schemas.agent_report import AgentReport, CallReport, RouteFacts
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig
from docllm.schemas.settings.quota import QuotaLimits
from tests.support.autoscaler import Autoscaler, Group, follow, turns

TEN_MINUTES = ScaleLimits(max_agents=50, target_s=600)
HOUR = 240  # looks


def load(waiting: int, agents: int = 2, **more: object) -> Workload:
    """Return a group whose tasks take 5 s each, with agents of 10 slots."""
    busy = 10 * agents
    given: dict[str, object] = {
        "waiting": waiting,
        "unfinished": waiting,
        "agents": agents,
        "slots": 10,
        "busy": busy,
        "ended_per_s": busy / 5,
        "partitions": 100,
        "routes": 1,
    }
    return Workload(**(given | more))  # type: ignore[arg-type]


def limited(**limits: int) -> ProviderAccount:
    return ProviderAccount(limits=QuotaLimits(**limits))  # type: ignore[arg-type]


def shown(found: Scale) -> tuple[int, str]:
    return found.desired, str(found.because)


@pytest.mark.parametrize(
    ("workload", "desired", "because"),
    [
        (load(0), 0, "idle"),
        (load(1), 1, "need"),
        # An agent of 10 slots does 1,200 tasks of 5 s in ten minutes.
        (load(12_000), 10, "need"),
        (load(1_000_000), 50, "max"),
        (load(1_000_000, partitions=12), 12, "partitions"),
        # 60 calls a minute of 5 s keep five slots busy; 25 at once need three agents.
        (load(1_000_000, accounts=[limited(rpm=60)]), 1, "quota"),
        (load(1_000_000, accounts=[limited(in_flight=25)]), 3, "quota"),
        (load(1_000_000, accounts=[limited(rpm=60), limited(in_flight=25)]), 3, "quota"),
        # 1,200 tokens a minute are 12 tasks of 100 tokens: one slot.
        (load(1_000_000, accounts=[limited(tpm=1200)], tokens_in=60, tokens_out=40), 1, "quota"),
        # Nothing is known of the tokens, or the limit is one of a day: neither binds now.
        (load(1_000_000, accounts=[limited(tpm=1200)]), 50, "max"),
        (load(1_000_000, accounts=[limited(rpd=1000)]), 50, "max"),
        # One account without limits feeds any number.
        (load(1_000_000, accounts=[limited(rpm=60), ProviderAccount()]), 50, "max"),
        # The agents found that 34 calls at once are taken: four agents of 10 slots.
        (load(1_000_000, 6, accounts=[ProviderAccount(learned=34.0)]), 4, "learned"),
        (
            load(1_000_000, 6, accounts=[ProviderAccount(learned=34.0), limited(in_flight=9)]),
            5,
            "learned",
        ),
        (
            load(1_000_000, 6, accounts=[ProviderAccount(learned=34.0), ProviderAccount()]),
            50,
            "max",
        ),
        # What was found never raises what a person has set.
        (
            load(
                1_000_000,
                6,
                accounts=[ProviderAccount(limits=QuotaLimits(in_flight=20), learned=34.0)],
            ),
            2,
            "quota",
        ),
        # In an outage no agent is added, and none is taken away.
        (load(1_000_000, 7, closed_routes=1, ended_per_s=0.0), 7, "closed"),
        (load(5, 7, closed_routes=1), 7, "closed"),
        (load(5, 0, closed_routes=1), 1, "closed"),
        # One route of two is closed: the other one has work for all agents, or it has not.
        (load(1_000_000, 7, routes=2, closed_routes=1), 50, "max"),
        (load(1_000_000, 7, routes=2, closed_routes=1, busy=20), 7, "closed"),
        # Tasks that wait for their hours need no agents now; other tasks do.
        (load(1_000_000, 7, waits_on_purpose=True, busy=0), 7, "waits"),
        (load(1_000_000, 7, waits_on_purpose=True), 50, "max"),
        (load(1200, 7, waits_on_purpose=True, busy=0), 1, "need"),
        # A bus that does not answer: more agents would read nothing, and the inbox is unknown.
        (load(1_000_000, 7, partitions=None), 7, "bus"),
        (load(0, 1, partitions=None), 1, "bus"),
        # Work that waits in retry topics needs an agent to call it up.
        (load(0, unfinished=40), 1, "need"),
        # The first task after a pause wakes one agent, which shows how long tasks take.
        (load(1_000_000, 0), 1, "need"),
        # Nothing has ended yet: tasks take as long as the oldest runs, at least.
        (load(1200, 2, ended_per_s=0.0, oldest_s=60.0), 12, "need"),
    ],
)
def test_what_binds_decides(workload: Workload, desired: int, because: str) -> None:
    """Each bound is named when it is the one that holds."""
    assert shown(scale(workload, TEN_MINUTES)) == (desired, because)


def test_a_person_sets_the_least_and_the_most() -> None:
    """The least holds even without work."""
    wanted = ScaleLimits(min_agents=2, max_agents=3, target_s=600)
    assert shown(scale(load(0), wanted)) == (2, "idle")
    assert shown(scale(load(1), wanted)) == (2, "min")
    assert shown(scale(load(1_000_000), wanted)) == (3, "max")
    assert shown(scale(load(1_000_000, 1, closed_routes=1), wanted)) == (2, "closed")


def test_one_agent_more_is_enough_more_to_be_noticed() -> None:
    """Kubernetes ignores a tenth: of 20 agents, 21 would stay 20 for ever."""
    assert scale(load(25_000, agents=20), TEN_MINUTES).need == 21
    assert shown(scale(load(25_000, agents=20), TEN_MINUTES)) == (23, "need")
    assert shown(scale(load(25_000, agents=20, partitions=21), TEN_MINUTES)) == (21, "need")


# ---- with an autoscaler


def answer(workload: Workload) -> Scale:
    return scale(workload, TEN_MINUTES)


@pytest.mark.parametrize("lost", [0.0, 0.3])
def test_a_group_that_is_scaled_does_not_flap(lost: float) -> None:
    """120,000 tasks come at once: agents come, stay, and leave once, when the work is done."""
    group, scaler = Group(Random(1), waiting=120_000.0, slots=10, task_s=5), Autoscaler()  # noqa: S311
    follow(group, scaler, answer=answer, looks=4 * HOUR, lost=lost)
    assert group.waiting == 0
    assert scaler.pods == 0
    assert max(difference for _, difference in scaler.changes) > 1
    assert turns(scaler.changes) == 1


@settings(max_examples=30, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    feeds=st.integers(10, 3000),
    task_s=st.floats(2, 120),
    limited=st.booleans(),
    lost=st.sampled_from([0.0, 0.1, 0.5]),
    storms=st.sampled_from([0.0, 0.1, 0.3]),
)
def test_agents_stay_within_what_the_provider_feeds(
    *, seed: int, feeds: int, task_s: float, limited: bool, lost: float, storms: float
) -> None:
    """A backlog without end: the number settles at the provider's limit, and stays there.

    A limit that a person has set is never passed. One that agents must find is passed while they
    look for it, by one doubling at most.
    """
    group = Group(Random(seed), waiting=endless(feeds, task_s), task_s=task_s)  # noqa: S311
    group.feeds, group.limited, group.storms = feeds, limited, storms
    scaler, fed = Autoscaler(), max(1, ceil(feeds / group.slots))
    answers = follow(group, scaler, answer=answer, looks=HOUR, lost=lost)
    most = min(fed, TEN_MINUTES.max_agents)
    assert max(each.desired for each in answers if each) <= (most if limited else 50)
    assert peak(scaler) <= (most if limited else max(2 * most + 2, 3))

    before = len(scaler.changes)
    answers = follow(group, scaler, answer=answer, looks=2 * HOUR, began_s=15 * HOUR, lost=lost)
    later = scaler.changes[before:]
    assert turns(later) <= 1
    # A tenth is hidden from the autoscaler, and a tenth of what was learned is no reason to act.
    assert most / 1.2 <= scaler.pods <= (1.1 if limited else 1.25) * (most + 1)


def endless(feeds: int, task_s: float) -> float:
    """Return more tasks than can be done in the time of a test."""
    return 2.0 * feeds / task_s * 15 * 6 * HOUR + 1e6


def peak(scaler: Autoscaler) -> int:
    pods = most = 0
    for _, difference in scaler.changes:
        pods += difference
        most = max(most, pods)
    return most


@settings(max_examples=30, derandomize=True)
@given(seed=st.integers(0, 2**32), task_s=st.floats(2, 60), before=st.integers(20, 120))
def test_an_outage_changes_no_number(*, seed: int, task_s: float, before: int) -> None:
    """While the provider is down, no agent is started and none is stopped."""
    group, scaler = Group(Random(seed), waiting=3e6, task_s=task_s), Autoscaler()  # noqa: S311
    follow(group, scaler, answer=answer, looks=before)
    group.is_down = True
    follow(group, scaler, answer=answer, looks=2, began_s=15 * before)  # until it is known
    pods = scaler.pods
    answers = follow(group, scaler, answer=answer, looks=HOUR, began_s=15 * (before + 2))
    assert {each.because for each in answers if each} == {ScaleBound.CLOSED}
    assert scaler.pods == pods


@settings(max_examples=15, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    bursts=st.lists(st.tuples(st.integers(1, 200_000), st.integers(10, 300)), max_size=6),
    task_s=st.floats(2, 60),
    lost=st.sampled_from([0.0, 0.3]),
)
def test_each_burst_of_work_turns_the_number_once(
    *, seed: int, bursts: list[tuple[int, int]], task_s: float, lost: float
) -> None:
    """Whatever comes and goes, agents turn twice for each burst at most, and none is left over."""
    group, scaler, now_s = Group(Random(seed), task_s=task_s), Autoscaler(), 0  # noqa: S311
    for tasks, looks in bursts:
        group.waiting += tasks
        follow(group, scaler, answer=answer, looks=looks, began_s=now_s, lost=lost)
        now_s += 15 * looks
    follow(group, scaler, answer=answer, looks=12 * HOUR, began_s=now_s, lost=lost)
    assert group.waiting == 0
    assert scaler.pods == 0
    assert turns(scaler.changes) <= 2 * len(bursts)


def test_each_bound_has_one_word() -> None:
    """The words are labels of a metric."""
    assert sorted(map(str, ScaleBound)) == [
        "bus",
        "closed",
        "idle",
        "learned",
        "max",
        "min",
        "need",
        "partitions",
        "quota",
        "waits",
    ]


def test_no_outage_keeps_more_agents_than_are_wanted() -> None:
    """While nobody knows what is needed, the agents stay, but not beyond the most."""
    outage = load(100, agents=30, routes=1, closed_routes=1)
    found = scale(outage, ScaleLimits(max_agents=10))
    assert (found.desired, found.because) == (10, ScaleBound.CLOSED)


CONFIG = Config(
    llm=LLMConfig(base_url="http://a/v1", model="m", limits=QuotaLimits(rpm=60)),
    routes={"other": RouteConfig(base_url="http://b/v1"), "same": RouteConfig(model="m")},
)


def route(name: str = "default", allowed: int | None = None, **more: object) -> RouteFacts:
    return RouteFacts(name, "open", allowed=allowed, **more)  # type: ignore[arg-type]


def test_only_accounts_with_work_count() -> None:
    """A spare route without limits does not lift the limits of the one that is used."""
    accounts = ProviderAccounts(CONFIG)
    used, spare = limited(rpm=60), ProviderAccount()
    assert accounts.with_work([route()]) == [used]
    assert accounts.with_work([route(), route("same")]) == [used]  # of the same account
    assert accounts.with_work([route(), route("other")]) == [used, spare]
    assert accounts.with_work([route(), route("unknown")]) == [used, spare]
    assert sorted(map(repr, accounts.with_work([]))) == sorted(map(repr, [used, spare]))


def test_a_closed_route_feeds_nothing() -> None:
    """The limits of a route that takes no calls say nothing of what the others feed."""
    parked = RouteFacts("default", "parked", since="2026-01-01T00:00:00Z")
    assert ProviderAccounts(CONFIG).with_work([parked, route("other", 8)]) == [
        ProviderAccount(learned=8.0)
    ]
    assert is_closed(parked)
    assert is_closed(route(since="2026-01-01T00:00:00Z", allowed=0))  # it pauses
    assert not is_closed(route(allowed=1))


@pytest.mark.parametrize(
    ("facts", "calls"),
    [
        ([route()], None),
        ([route(allowed=20)], 20),
        ([route(allowed=20), route(allowed=30)], 50),
        # A new agent has found nothing yet, and one that pauses has no level for a moment.
        ([route(allowed=20), route(allowed=30), route()], 75),
        ([route(allowed=20), route(allowed=0, since="2026-01-01T00:00:00Z")], 40),
        # Most agents found no limit.
        ([route(allowed=20), route()], None),
    ],
)
def test_what_a_route_takes_is_learned_from_its_levels(
    facts: list[RouteFacts], calls: float | None
) -> None:
    """The level of each agent is its part of what the provider takes."""
    assert learned_calls(facts) == calls


def agent(number: int, *routes: RouteFacts, **report: object) -> AgentStatus:
    of_agent = AgentReport(slots=64, routes=routes, **report)  # type: ignore[arg-type]
    return AgentStatus(number, f"a{number}", AgentState.ALIVE, 0.5, report=of_agent)


def batch(retrying: int = 0, rate_per_s: float = 0.0, *minutes: int) -> BatchStatus:
    counts = {"pending": 0, "processing": 0, "retrying": retrying}
    return BatchStatus(
        name="b",
        counts=counts,
        rate_per_s=rate_per_s,
        eta_s=None,
        tokens_in=0,
        tokens_out=0,
        cost=0.0,
        per_minute=minutes,
    )


def read(
    *agents: AgentStatus,
    batches: tuple[BatchStatus, ...] = (),
    unfinished: int = 0,
    waiting: int = 0,
    inbox: int | None = 0,
    waits: tuple[Urgency, ...] = (),
) -> Workload:
    """Return the work of a group whose topic of tasks has 12 partitions."""
    sentences = tuple(Sentence(urgency, ("a", "b"), "why") for urgency in waits)
    status = GroupStatus(
        group="g", ledger="ledger", agents=agents, batches=batches, orders=0, waits=sentences
    )
    snapshot = Snapshot(
        status=status,
        sums=GroupSums(loaded=unfinished),
        oldest_due_s={},
        replaying=Counter(),
        waiting=waiting,
    )
    backlogs = {} if inbox is None else {"inbox": Backlog(inbox, None, {})}
    reading = Reading(snapshot=snapshot, at_s=1000.0, took_s=0.5, backlogs=backlogs, partitions=12)
    return workload(reading, slots=8, accounts=ProviderAccounts(CONFIG))


def test_the_first_reading_after_a_restart_knows_what_agents_have_found() -> None:
    """The exporter remembers nothing: the agents' reports have all that it needs."""
    agents = [agent(number, route("other", 16), running=16) for number in range(4)]
    found = read(*agents, batches=(batch(0, 2.0),), unfinished=100_000)
    answer = scale(found, ScaleLimits())
    assert (answer.desired, answer.because) == (2, ScaleBound.LEARNED)


def test_the_inbox_and_due_retries_wake_a_group_without_agents() -> None:
    """Nobody else reads the inbox, or calls up what is due."""
    assert scale(read(inbox=3), ScaleLimits()).desired == 1
    assert scale(read(batches=(batch(5),), unfinished=5), ScaleLimits()).desired == 1
    assert scale(read(), ScaleLimits()).desired == 0


def test_tasks_whose_time_is_far_off_need_one_agent() -> None:
    """It calls them up; many more would have nothing to do until then."""
    assert scale(read(agent(1), unfinished=10**6, waiting=10**6), ScaleLimits()).desired == 1


def test_an_unknown_inbox_is_not_an_empty_one() -> None:
    """While the bus does not answer, the last agent stays, and no agent is added."""
    answer = scale(read(agent(1), inbox=None), ScaleLimits())
    assert (answer.desired, answer.because) == (1, ScaleBound.BUS)
    many = read(agent(1, route("other"), running=64), inbox=None, unfinished=10**6)
    assert scale(many, ScaleLimits()).desired == 1


def test_a_pause_for_refused_calls_changes_no_number() -> None:
    """All agents pause for some seconds: none is started, and none is stopped."""
    paused = route("other", 0, since="2026-01-01T00:00:00Z")
    answer = scale(read(*[agent(n, paused) for n in range(4)], unfinished=10**6), ScaleLimits())
    assert (answer.desired, answer.because) == (4, ScaleBound.CLOSED)


def test_long_tasks_are_not_taken_for_short_ones() -> None:
    """None ended in the last minute: the last ten minutes count, or the age of the oldest."""
    few = read(agent(1, running=60), batches=(batch(0, 0.0, *[6] * 10),), unfinished=100)
    assert few.task_s == pytest.approx(600)
    none = read(
        agent(
            1,
            running=60,
            oldest_call=CallReport(task=1, batch="b", key="k", route="r", running_s=240.0),
        )
    )
    assert none.task_s == 240


@pytest.mark.parametrize(
    ("urgency", "waits"),
    [
        (Urgency.TYPE_ASLEEP, True),
        (Urgency.GUARD_RAISED, True),
        (Urgency.LOCK_HELD, True),
        (Urgency.AGENT_SILENT, False),
    ],
)
def test_waits_on_purpose_are_known(urgency: Urgency, waits: bool) -> None:  # noqa: FBT001 - a case
    """Tasks that wait for their hours, a guard or a lock wait beside free slots."""
    assert read(waits=(urgency,)).waits_on_purpose is waits
