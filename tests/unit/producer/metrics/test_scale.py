"""How many agents are useful: what binds decides, and an autoscaler that follows does not flap."""

from math import ceil

import pytest

from producer.metrics.scale import Bound, Scale, ScaleLimits, Workload, scale
from producer.metrics.workload import account_limits
from schemas.settings.config import Config, LLMConfig, RouteConfig
from schemas.settings.quota import QuotaLimits

TEN_MINUTES = ScaleLimits(most=50, target_s=600)


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
    }
    return Workload(**(given | more))  # type: ignore[arg-type]


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
        (load(1_000_000, partitions=None), 50, "max"),
        # 60 calls a minute of 5 s keep five slots busy; 25 at once need three agents.
        (load(1_000_000, limits=[QuotaLimits(rpm=60)]), 1, "quota"),
        (load(1_000_000, limits=[QuotaLimits(in_flight=25)]), 3, "quota"),
        (load(1_000_000, limits=[QuotaLimits(rpm=60), QuotaLimits(in_flight=25)]), 3, "quota"),
        # 1,200 tokens a minute are 12 tasks of 100 tokens: one slot.
        (load(1_000_000, limits=[QuotaLimits(tpm=1200)], tokens_in=60, tokens_out=40), 1, "quota"),
        # Nothing is known of the tokens, or the limit is one of a day: neither binds now.
        (load(1_000_000, limits=[QuotaLimits(tpm=1200)]), 50, "max"),
        (load(1_000_000, limits=[QuotaLimits(rpd=1000)]), 50, "max"),
        # In an outage no agent is added, and none is taken away.
        (load(1_000_000, agents=7, closed=True, ended_per_s=0.0), 7, "closed"),
        (load(5, agents=0, closed=True), 1, "closed"),
        # Work that waits in retry topics needs an agent to call it up.
        (load(0, unfinished=40), 1, "need"),
        # The first task after a pause wakes one agent, which shows how long tasks take.
        (load(1_000_000, agents=0, busy=0, ended_per_s=0.0), 1, "need"),
    ],
)
def test_what_binds_decides(workload: Workload, desired: int, because: str) -> None:
    """Each bound is named when it is the one that holds."""
    assert shown(scale(workload, TEN_MINUTES)) == (desired, because)


def test_a_person_sets_the_least_and_the_most() -> None:
    """The least holds even without work."""
    wanted = ScaleLimits(least=2, most=3, target_s=600)
    assert shown(scale(load(0), wanted)) == (2, "idle")
    assert shown(scale(load(1), wanted)) == (2, "min")
    assert shown(scale(load(1_000_000), wanted)) == (3, "max")


def test_one_agent_more_is_enough_more_to_be_noticed() -> None:
    """Kubernetes ignores a tenth: of 20 agents, 21 would stay 20 for ever."""
    assert scale(load(25_000, agents=20), TEN_MINUTES).need == 21
    assert shown(scale(load(25_000, agents=20), TEN_MINUTES)) == (23, "need")
    assert shown(scale(load(25_000, agents=20, partitions=21), TEN_MINUTES)) == (21, "need")


def test_an_account_without_limits_feeds_any_number() -> None:
    """Only if all accounts have limits do these bind; routes of one account count once."""
    limited = LLMConfig(base_url="http://a/v1", limits=QuotaLimits(rpm=60))
    assert account_limits(Config()) is None
    assert account_limits(Config(llm=limited)) == [QuotaLimits(rpm=60)]
    open_route = {"other": RouteConfig(base_url="http://b/v1")}
    assert account_limits(Config(llm=limited, routes=open_route)) is None


class Autoscaler:
    """Kubernetes' rule: a tolerance, and no fewer agents than any time in the last ten minutes."""

    def __init__(self, agents: int) -> None:
        self.agents = agents
        self.changes: list[int] = []
        self._wanted: list[int] = []

    def follow(self, desired: int | None) -> None:
        """Look once, each 15 s; None is an answer that did not come."""
        if desired is None:
            return
        self._wanted = [*self._wanted, desired][-40:]
        target = desired if desired > self.agents else max(self._wanted)
        is_near = self.agents and abs(target / self.agents - 1) <= 0.1
        if target != self.agents and not is_near:
            doubled = max(2 * self.agents, 1)
            target = min(target, doubled)
            self.changes.append(target - self.agents)
            self.agents = target


@pytest.mark.parametrize("lost_answers", [False, True])
def test_a_group_that_is_scaled_does_not_flap(*, lost_answers: bool) -> None:
    """120,000 tasks come at once: agents come, stay, and leave once, when the work is done."""
    left, scaler = 120_000.0, Autoscaler(0)
    for look in range(400):
        busy = min(10 * scaler.agents, ceil(left))
        workload = load(
            ceil(left), scaler.agents, busy=busy, ended_per_s=busy / 5, unfinished=ceil(left)
        )
        is_lost = lost_answers and look % 3 == 1
        scaler.follow(None if is_lost else scale(workload, TEN_MINUTES).desired)
        left = max(0.0, left - 15 * busy / 5)

    assert left == 0
    assert scaler.agents == 0
    turns = sum(
        (first > 0) != (second > 0)
        for first, second in zip(scaler.changes, scaler.changes[1:], strict=False)
    )
    assert turns == 1
    assert max(scaler.changes) > 0


def test_each_bound_has_one_word() -> None:
    """The words are labels of a metric."""
    assert sorted(map(str, Bound)) == [
        "closed",
        "idle",
        "max",
        "min",
        "need",
        "partitions",
        "quota",
    ]
