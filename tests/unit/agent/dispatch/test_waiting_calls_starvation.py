"""No task waits for ever for a grant: the real parts in virtual time, with endless other tasks."""

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from docllm.agent.inflight.turns import FIRST_TURNS
from docllm.schemas.settings.config import AgentConfig, Config, LLMConfig, RouteConfig, TypeConfig
from docllm.schemas.settings.quota import QuotaLimits, TenantConfig
from docllm.schemas.task.record.lanes import TURNS, Lane
from tests.support.crowded_agent import CrowdedAgent, RouteOutage, TaskKind

BEGINS = 4  # how often tasks of each kind must begin
MOST_S = 900.0
MINUTE_S = 60.0
SLACK = 1.5
EXCHANGE_S = 0.7
AFTER_OUTAGE_S = 30.0  # probes, and slow start
SUSPECT_RESTS_S = 200.0
NARROW = "narrow"  # a type that may have slots of its own
some = st.sampled_from


# ---- what may be drawn


def limits() -> st.SearchStrategy[QuotaLimits]:
    """Draw limits within which some calls begin in each minute."""
    return st.builds(
        QuotaLimits,
        rpm=some([None, None, 60, 300]),
        tpm=some([None, 6000, 60_000]),
        itpm=some([None, None, 6000, 30_000]),
        in_flight=some([None, None, 1, 3]),
    )


def tenants() -> st.SearchStrategy[TenantConfig]:
    """Draw weight and most calls of a tenant."""
    return st.builds(TenantConfig, weight=some([0.5, 1.0, 3.0]), in_flight=some([None, None, 1, 2]))


def kinds() -> st.SearchStrategy[TaskKind]:
    """Draw tasks that are alike, with calls from tiny ones to some beyond a minute's limit."""
    return st.builds(
        TaskKind,
        route=some("abc"),
        tenant=some(["acme", "beta"]),
        lane=some([Lane.NORMAL, Lane.NORMAL, Lane.URGENT, Lane.BULK]),
        type=some(["document", "document", NARROW]),
        was_waiting=st.booleans(),
        tokens=some([1, 20, 500, 3000, 9000]),
        calls=some([1, 1, 1, 2]),
        lasts_s=some([0.1, 0.5, 2.0, 10.0]),
        backlog=some([1, 3]),
    )


@st.composite
def agents(draw: st.DrawFn) -> tuple[Config, list[TaskKind], list[RouteOutage]]:
    """Draw settings, kinds of tasks and outages.

    Route a has a fallback, b; route c has the account of b, one of its own, or no limit.
    """
    config = Config(
        agent=AgentConfig(slots=draw(st.integers(1, 8))),
        llm=LLMConfig(base_url="http://h/v1", model="m", timeout_s=60.0),
        routes={
            "a": RouteConfig(limits=draw(limits()), fallback=("b",)),
            "b": RouteConfig(limits=draw(limits())),
            "c": draw(
                some([RouteConfig(model="b"), RouteConfig()])
                | st.builds(RouteConfig, limits=limits())
            ),
        },
        tenants={"acme": draw(tenants()), "beta": draw(tenants())},
        types={NARROW: TypeConfig(slots=draw(some([None, 1])))},
    )
    usual = draw(st.lists(kinds(), min_size=1, max_size=4, unique=True))
    losses = draw(st.lists(some([2, 3]), max_size=1))
    suspects = [replace(draw(kinds()), lease_losses=n, rest_s=SUSPECT_RESTS_S) for n in losses]
    outages = draw(
        st.lists(st.builds(RouteOutage, some("abc"), some([3.0, 20.0]), some([5.0, 30.0])))
    )
    return config, [on_one_route(kind, config) for kind in usual + suspects], outages[:1]


def on_one_route(kind: TaskKind, config: Config) -> TaskKind:
    """Let a tenant with a limit, and a type with slots of its own, have tasks on one route only.

    A task that needs a free place of its tenant or type, and also a grant that others take
    meanwhile, begins by chance alone.
    """
    if config.type_settings(kind.type).slots is not None:
        return replace(kind, route="b")
    return replace(kind, route="c") if config.tenant(kind.tenant).in_flight else kind


# ---- how long a kind may wait


class WaitBounds:
    """How long the tasks of each kind may wait for their turn.

    That is how long the tasks before it take, as if they ran one after the other, each within all
    limits.
    """

    def __init__(self, agent: CrowdedAgent, outages: list[RouteOutage]) -> None:
        self._agent = agent
        self._usual = [kind for kind in agent.kinds if not kind.lease_losses]
        self._lost_s = sum(outage.lasts_s + AFTER_OUTAGE_S for outage in outages)

    def wait_s(self, kind: TaskKind) -> float:
        """Return how long a kind may wait."""
        least = self._turns(kind, least=True)
        before = {
            other: max(1.0, self._turns(other, least=False) / least) for other in self._agent.kinds
        }
        took_s = sum(number * self._alone_s(other) for other, number in before.items())
        return 10.0 + self._lost_s + SLACK * took_s

    def _alone_s(self, kind: TaskKind) -> float:
        """Return how long one task takes, with the time in which the limits allow the next one."""
        routes = {kind.route, "b"} if kind.route == "a" else {kind.route}
        limited_s = max(self._limited_s(kind, route) for route in routes)
        return kind.calls * (EXCHANGE_S + kind.lasts_s + limited_s)

    def _limited_s(self, kind: TaskKind, route: str) -> float:
        limits = self._agent.gate.configured.limits(route)
        tokens = [min(1.0, (kind.tokens + 1) / most) for most in (limits.tpm, limits.itpm) if most]
        return MINUTE_S * max([*tokens, 1 / limits.rpm if limits.rpm else 0.0])

    def _turns(self, kind: TaskKind, *, least: bool) -> float:
        """Return the least or the largest part of all turns that a kind may have."""
        if kind.lease_losses:
            return 1.0
        lanes = {other.lane for other in self._usual}
        of_lane = TURNS[kind.lane] / sum(TURNS[lane] for lane in lanes)
        if not least:
            return of_lane
        in_lane = [other for other in self._usual if other.lane is kind.lane]
        on_route = [other for other in in_lane if other.route == kind.route]
        weights = {self._queue(other): self._weight(other) for other in on_route}
        # The tasks of tenants without waiting tasks go ahead of the round when they come.
        others = FIRST_TURNS if len(weights) > 1 else 0
        of_queue = self._weight(kind) / sum(weights.values()) / (1 + others)
        beside = [other for other in on_route if self._queue(other) == self._queue(kind)]
        of_kind = kind.backlog / sum(other.backlog for other in beside) / 2  # new and returned ones
        return of_lane / len({other.route for other in in_lane}) * of_queue * of_kind

    def _queue(self, kind: TaskKind) -> tuple[str, str]:
        own = self._agent.config.type_settings(kind.type).slots is not None
        return kind.tenant, kind.type if own else ""

    def _weight(self, kind: TaskKind) -> float:
        return self._agent.config.tenant(kind.tenant).weight


# ---- the property


def check(config: Config, kinds: list[TaskKind], outages: list[RouteOutage]) -> None:
    """Let an agent work until each kind has begun often; fail if something waits too long."""
    agent = CrowdedAgent(config=config, kinds=kinds, outages=outages)
    bounds = WaitBounds(agent, outages)
    most_s = {kind: bounds.wait_s(kind) for kind in kinds}
    until_s = agent.clock.now_s() + MOST_S
    while min(agent.begun.values()) < BEGINS and agent.clock.now_s() < until_s:
        agent.step()
        for kind, since_s in agent.waiting_since():
            waits_s = agent.clock.now_s() - since_s
            assert waits_s <= most_s[kind], f"{kind} waits for {waits_s:.0f} s: {agent.begun}"
        left = agent.left_behind()
        assert left is None, f"{left} has a grant and does not begin"
    agent.close()


@settings(max_examples=8, derandomize=True, phases=[Phase.generate])  # shrinking takes too long
@given(agents())
def test_tasks_of_every_kind_begin_again_and_again(
    made: tuple[Config, list[TaskKind], list[RouteOutage]],
) -> None:
    """No task waits longer than those before it take, and no grant goes unused beside a task."""
    check(*made)


SMALL, LARGE = TaskKind(route="a", tokens=20), TaskKind(route="a", tokens=3000)
TOKENS, REQUESTS = QuotaLimits(tpm=60_000), QuotaLimits(rpm=60)
ONE_ACCOUNT = {"a": RouteConfig(model="m"), "b": RouteConfig(model="m")}
STORIES: dict[str, tuple[int, QuotaLimits, dict[str, RouteConfig], list[TaskKind]]] = {
    "a large new task beside small returned ones": (
        1,
        TOKENS,
        ONE_ACCOUNT,
        [LARGE, replace(SMALL, was_waiting=True)],
    ),
    "a large task of one tenant beside small ones with two calls": (
        3,
        QuotaLimits(tpm=6000, rpm=60),
        ONE_ACCOUNT,
        [
            TaskKind(route="a", tokens=500, tenant="beta", calls=2, lasts_s=0.1, was_waiting=True),
            replace(SMALL, calls=2, backlog=1, was_waiting=True),
        ],
    ),
    "a large task on the first route of the account": (
        1,
        TOKENS,
        ONE_ACCOUNT,
        [LARGE, replace(SMALL, route="b")],
    ),
    "a large task on the second route of the account": (
        1,
        TOKENS,
        ONE_ACCOUNT,
        [replace(LARGE, route="b"), SMALL],
    ),
    "a route with a limit beside one without": (
        1,
        REQUESTS,
        {"a": RouteConfig(model="m"), "b": RouteConfig(model="other")},
        [SMALL, replace(SMALL, route="b")],
    ),
    "second calls on another route of the account": (
        2,
        REQUESTS,
        ONE_ACCOUNT,
        [replace(SMALL, calls=2, backlog=1), replace(SMALL, route="b")],
    ),
    "a task that must run alone beside long calls": (
        4,
        TOKENS,
        {"a": RouteConfig(model="m"), "b": RouteConfig(model="other")},
        [
            replace(LARGE, lease_losses=3, rest_s=SUSPECT_RESTS_S),
            replace(SMALL, route="b", lasts_s=10.0),
        ],
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_nothing_waits_for_ever(story: str) -> None:
    """Each of these waited for ever once."""
    slots, limited, routes, some_kinds = STORIES[story]
    config = Config(
        agent=AgentConfig(slots=slots),
        llm=LLMConfig(base_url="http://h/v1", model="m", timeout_s=60.0, limits=limited),
        routes=routes,
    )
    check(config, some_kinds, [])


@pytest.mark.parametrize("lane", [Lane.URGENT, Lane.NORMAL])
@pytest.mark.parametrize("held", [replace(SMALL, tenant="acme"), replace(SMALL, type=NARROW)])
def test_tasks_that_are_held_up_leave_the_grants_to_others(held: TaskKind, lane: Lane) -> None:
    """With one free slot, only one call is asked for; it must be one that may begin."""
    config = Config(
        agent=AgentConfig(slots=2),
        llm=LLMConfig(base_url="http://h/v1", model="m", timeout_s=60.0, limits=TOKENS),
        routes={"a": RouteConfig(model="m")},
        tenants={"acme": TenantConfig(in_flight=1)},
        types={NARROW: TypeConfig(slots=1)},
    )
    begun = []
    for beside in ([], [replace(held, lasts_s=30.0, lane=lane)]):
        agent = CrowdedAgent(config=config, kinds=[LARGE, *beside])
        for _ in range(600):
            agent.step()
        agent.close()
        begun.append(agent.begun[LARGE])

    assert begun[1] >= begun[0] / 2


def test_a_route_with_a_limit_gets_its_part_of_the_slots() -> None:
    """It has a grant when a slot is free, although others could take each slot at once."""
    config = Config(
        agent=AgentConfig(slots=8),
        llm=LLMConfig(base_url="http://h/v1", model="m", timeout_s=60.0, limits=REQUESTS),
        routes={"a": RouteConfig(model="m"), "b": RouteConfig(model="other")},
    )
    limited, free = (
        TaskKind(route=route, tokens=20, lasts_s=20.0, backlog=20) for route in ("a", "b")
    )
    agent = CrowdedAgent(config=config, kinds=[limited, free])
    for _ in range(4000):
        agent.step()
    agent.close()

    assert agent.begun[limited] >= agent.begun[free] / 3


def test_second_calls_of_a_tenant_do_not_wait_for_its_first_ones() -> None:
    """Otherwise its attempts would fill the slots, and all would wait."""
    config = Config(
        agent=AgentConfig(slots=8),
        llm=LLMConfig(base_url="http://h/v1", model="m", timeout_s=60.0),
        routes={"a": RouteConfig(model="m")},
        tenants={"acme": TenantConfig(in_flight=1)},
    )
    agent = CrowdedAgent(config=config, kinds=[TaskKind(route="a", tenant="acme", calls=2)])
    most = 0
    for _ in range(200):
        agent.step()
        most = max(most, len(agent.running))
    agent.close()

    assert most <= 2


QUICK = TaskKind(route="b", lasts_s=0.1, backlog=20)  # many of them are claimed ahead


@pytest.mark.parametrize(
    "other",
    [
        replace(QUICK, backlog=1, lease_losses=3, rest_s=SUSPECT_RESTS_S),
        replace(QUICK, backlog=3, type=NARROW),
        replace(QUICK, backlog=3, tenant="acme"),
        TaskKind(route="a", lasts_s=0.1),
    ],
    ids=["a suspect that must run alone", "a narrow type", "a tenant's limit", "a route's limit"],
)
def test_no_task_waits_for_ever_beside_tasks_that_are_claimed_ahead(other: TaskKind) -> None:
    """Tasks without other limits than the slot go on, too."""
    config = Config(
        agent=AgentConfig(slots=4),
        llm=LLMConfig(base_url="http://h/v1", model="m", timeout_s=60.0),
        routes={"a": RouteConfig(limits=QuotaLimits(rpm=300)), "b": RouteConfig()},
        tenants={"acme": TenantConfig(in_flight=1)},
        types={NARROW: TypeConfig(slots=1)},
    )

    check(config, [QUICK, other], [])


def test_tasks_are_claimed_ahead_while_only_the_slots_limit_them() -> None:
    """Slots are never empty while tasks wait."""
    config = Config(
        agent=AgentConfig(slots=4), llm=LLMConfig(base_url="http://h/v1", model="m", timeout_s=60.0)
    )
    agent = CrowdedAgent(config=config, kinds=[replace(QUICK, route="default")], outages=[])
    for _ in range(20):
        agent.step()

    assert agent.most_ahead == config.agent.slots
    agent.close()
