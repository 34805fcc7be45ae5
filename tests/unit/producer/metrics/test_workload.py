"""What a group has to do, from one reading: what agents report of routes, and what is unknown."""

from collections import Counter

import pytest

from docllm.producer.ledger.status.agent_status import AgentState, AgentStatus
from docllm.producer.ledger.status.batch_status import BatchStatus
from docllm.producer.ledger.status.group_status import GroupStatus
from docllm.producer.ledger.status.group_sums import GroupSums
from docllm.producer.ledger.status.snapshot import Snapshot
from docllm.producer.metrics.exporter import ProviderAccounts, is_closed, learned_calls, workload
from docllm.producer.metrics.families import Reading
from docllm.producer.metrics.scale import ProviderAccount, ScaleBound, ScaleLimits, Workload, scale
from docllm.producer.ports import Backlog
from docllm.producer.text.agent_sentences import Sentence
from docllm.producer.text.urgency import Urgency
from docllm.schemas.agent_report import AgentReport, CallReport, RouteFacts
from docllm.schemas.settings.config import Config, LLMConfig, RouteConfig
from docllm.schemas.settings.quota import QuotaLimits

CONFIG = Config(
    llm=LLMConfig(base_url="http://a/v1", model="m", limits=QuotaLimits(rpm=60)),
    routes={"other": RouteConfig(base_url="http://b/v1"), "same": RouteConfig(model="m")},
)


def limited(**limits: int) -> ProviderAccount:
    return ProviderAccount(limits=QuotaLimits(**limits))  # type: ignore[arg-type]


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
