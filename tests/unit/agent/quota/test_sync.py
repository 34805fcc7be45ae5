"""Agents that share a provider's limits through a store in memory, on a hand-moved clock."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from docllm.agent.ports import Clock
from docllm.agent.quota.grants import (
    Charge,
    DayCount,
    GrantStore,
    LimitKind,
    QuotaAnswer,
    QuotaRequest,
    WaitingCall,
)
from docllm.agent.quota.quotas import Quotas
from docllm.agent.quota.share import ShareGrantStore
from docllm.agent.quota.sync import EXCHANGE_EVERY_S, WHAT_TO_DO, QuotaSync
from docllm.schemas.settings.quota import QuotaLimits
from tests.support.memory_quota import MemoryQuotaServer
from tests.support.quota_fleet import (
    ROUTE,
    STEP_S,
    CountingProvider,
    Fleet,
    MovedClock,
    StrictProvider,
)

RPM = QuotaLimits(rpm=600)
TPM = QuotaLimits(tpm=600_000)
ALONE = 0  # one agent without Redis
GOAL = 0.98  # of a limit that is used
BOUND = 1.02  # of a limit in any minute


def fleet(
    agents: int,
    limits: QuotaLimits,
    *,
    window_s: float = 60.0,
    call_s: float = 2.0,
    slots: int = 64,
    tokens: tuple[int, int] = (100, 100),
    used: float = 1.0,
    provider: CountingProvider | None = None,
) -> tuple[Fleet, MemoryQuotaServer]:
    clock = MovedClock()
    server = MemoryQuotaServer(clock.now_s)
    made = Fleet(
        agents=agents or 1,
        limits=limits,
        store_of=lambda number: server.store(f"agent {number}") if agents else None,
        clock=clock,
        provider=provider or CountingProvider(limits, window_s),
        call_s=call_s,
        slots=slots,
        tokens=tokens,
        used=used,
    )
    return made, server


def duty_of(quotas: Quotas, store: GrantStore, clock: Clock, *, part: float) -> QuotaSync:
    """Return the duty of an agent that has this part of all partitions."""
    return QuotaSync(
        quotas=quotas,
        store=store,
        share=ShareGrantStore(partitions=lambda: part, clock=clock),
        clock=clock,
        jitter=lambda: 0.5,
        granted=lambda: None,
    )


@pytest.mark.parametrize("agents", [ALONE, 1, 8])
def test_a_provider_that_lets_two_calls_pass_at_once_is_used(agents: int) -> None:
    """After the first refusals calls begin one after another, so no more are refused."""
    some, _ = fleet(agents, QuotaLimits(rpm=300), window_s=2 * 60 / 300)
    some.drive(120.0)

    assert some.provider.calls(60.0, 120.0) >= GOAL * 300
    assert len(some.provider.refusals) <= agents + 3
    assert max(some.provider.refusals, default=0.0) < 60.0


@pytest.mark.parametrize("agents", [ALONE, 1, 8, 24])
def test_agents_use_a_limit_of_requests_and_no_more(agents: int) -> None:
    """Over two minutes nearly all is used, nothing refused, and no agent is left behind."""
    some, _ = fleet(agents, RPM, window_s=2.0)
    some.drive(130.0)

    assert some.provider.refusals == []
    assert some.provider.calls(10.0, 130.0) >= GOAL * 1200
    assert some.provider.fullest_minute() <= BOUND * 600
    done = [agent.done for agent in some.agents]
    assert min(done) >= 0.5 * sum(done) / len(done)


@pytest.mark.parametrize("used", [0.4, 1.0])
@pytest.mark.parametrize("agents", [ALONE, 1, 8])
def test_agents_use_a_limit_of_tokens(agents: int, used: float) -> None:
    """Estimates that are too high are settled, so the limit is used nevertheless."""
    some, _ = fleet(agents, TPM, tokens=(500, 3500), used=used)
    some.drive(130.0)

    assert some.provider.refusals == []
    tokens = some.provider.tokens(10.0, 130.0)
    assert GOAL * 1_200_000 <= tokens <= BOUND * 1_200_000


@pytest.mark.parametrize("agents", [ALONE, 1, 4])
@pytest.mark.parametrize(
    ("limits", "tokens"),
    [(QuotaLimits(rpm=3), 1), (QuotaLimits(rpm=60), 1), (TPM, 6_000), (TPM, 60_000)],
)
def test_no_minute_has_more_than_the_limit(agents: int, limits: QuotaLimits, tokens: int) -> None:
    """A provider that counts every 60 seconds strictly refuses nothing, and is used."""
    some, _ = fleet(agents, limits, tokens=(tokens, tokens), provider=StrictProvider(limits))
    some.drive(310.0)

    most = 5 * (limits.rpm or 600_000 / tokens)
    assert some.provider.refusals == []
    assert GOAL * most - 1 <= some.provider.calls(10.0, 310.0) <= most


@pytest.mark.parametrize("agents", [ALONE, 1, 4])
def test_a_strict_provider_refuses_one_large_call(agents: int) -> None:
    """Two fifths of a limit fit twice into a minute; one refusal shows that minutes are strict."""
    some, _ = fleet(agents, TPM, tokens=(240_000, 240_000), provider=StrictProvider(TPM))
    some.drive(310.0)

    assert len(some.provider.refusals) <= 1
    assert some.provider.calls(10.0, 310.0) >= GOAL * 5 * 2 - 1


@pytest.mark.parametrize("agents", [1, 4])
def test_a_provider_that_refills_takes_large_calls_as_fast_as_it_can(agents: int) -> None:
    """Nobody waits for a strict minute there."""
    some, _ = fleet(agents, TPM, tokens=(240_000, 240_000))
    some.drive(610.0)

    assert some.provider.refusals == []
    assert some.provider.calls(10.0, 610.0) >= GOAL * 10 * 2.5 - 1


@pytest.mark.parametrize("agents", [ALONE, 1, 8])
def test_agents_use_a_limit_of_calls_at_once(agents: int) -> None:
    """The seats are taken again as soon as calls end, and never more than there are."""
    some, _ = fleet(agents, QuotaLimits(in_flight=40), call_s=3.0)
    some.drive(20.0)
    before = len(some.provider.begun)
    some.drive(80.0)

    assert some.provider.refusals == []
    assert some.provider.most <= 40
    assert len(some.provider.begun) - before >= 0.97 * 40 * 60 / 3.0


def test_more_agents_than_seats_all_have_turns() -> None:
    """Eight agents with three seats: each calls, and nearly all of the time is used."""
    some, _ = fleet(8, QuotaLimits(in_flight=3), call_s=1.0)
    some.drive(300.0)

    assert some.provider.most <= 3
    assert some.provider.refusals == []
    assert len(some.provider.begun) >= 0.95 * 3 * 300
    assert min(agent.done for agent in some.agents) >= 10


@pytest.mark.parametrize("limits", [{}, {"rpm": 9000}, {"tpm": 900_000}])
@pytest.mark.parametrize("call_s", [0.3, 0.8])
def test_seats_of_short_calls_are_used(call_s: float, limits: dict[str, Any]) -> None:
    """A seat whose call ends is used again at once, though the store answers later."""
    some, _ = fleet(8, QuotaLimits(in_flight=20, **limits), call_s=call_s)
    some.drive(10.0)
    before = len(some.provider.begun)
    some.drive(70.0)

    assert some.provider.refusals == []
    used_s = (len(some.provider.begun) - before) * (call_s + STEP_S / 2)
    assert used_s >= GOAL * 20 * 60


@pytest.mark.parametrize("limits", [RPM, QuotaLimits(in_flight=40)])
def test_the_share_of_a_killed_agent_is_used_within_ten_seconds(limits: QuotaLimits) -> None:
    """The killed agent's grants are lost for seconds only, and so are its seats."""
    some, _ = fleet(4, limits, call_s=2.0)
    some.drive(30.0)
    rate = some.provider.calls(10.0, 30.0) / 20
    some.agents[0].frozen = True
    some.provider.running -= len(some.agents[0].calls)
    some.drive(60.0)

    assert some.provider.calls(40.0, 60.0) >= 0.97 * 20 * rate


def test_a_frozen_agent_calls_nobody_with_old_grants() -> None:
    """What it was granted before is given back when it wakes."""
    some, _ = fleet(2, RPM)
    some.drive(30.0)
    some.agents[0].frozen = True
    some.drive(90.0)
    some.agents[0].frozen = False
    some.drive(150.0)

    assert some.provider.refusals == []
    assert some.provider.fullest_minute() <= BOUND * 600


def test_without_redis_agents_keep_to_their_shares(caplog: pytest.LogCaptureFixture) -> None:
    """Redis away for a minute: most of the limit is used and no more; then all of it again."""
    caplog.set_level(logging.INFO)
    some, server = fleet(8, RPM, window_s=2.0)
    some.drive(30.0)
    server.away = True
    some.drive(90.0)
    server.away = False
    some.drive(150.0)

    assert some.provider.refusals == []
    assert some.provider.calls(40.0, 90.0) >= 0.75 * 500
    assert some.provider.calls(100.0, 150.0) >= GOAL * 500
    assert some.provider.fullest_minute() <= BOUND * 600
    assert len([line for line in caplog.messages if "Redis" in line]) == 2 * 8


@pytest.mark.parametrize("agents", [2, 4])
@pytest.mark.parametrize("limits", [RPM, QuotaLimits(in_flight=20)])
def test_one_agent_without_redis_adds_its_share_to_the_limit(
    agents: int, limits: QuotaLimits
) -> None:
    """The others use all of the limit meanwhile, and all keep to it once it reaches Redis again."""
    some, _ = fleet(agents, limits, provider=CountingProvider())
    some.drive(80)
    alone = some.agents[0]
    alone.store, reached = cut_off(), alone.store
    some.drive(150)
    alone.store = reached
    some.drive(220)

    usual, returned = some.provider.calls(20, 80), some.provider.calls(160, 220)
    assert 1 + 0.6 / agents <= some.provider.calls(90, 150) / usual <= 1 + 0.9 / agents
    assert 0.95 <= returned / usual <= 1.05


def cut_off() -> GrantStore:
    """Return the store as an agent sees it that cannot reach it."""
    server = MemoryQuotaServer(lambda: 0.0)
    server.away = True
    return server.store("cut off")


def test_the_calls_of_a_day_hold_through_an_outage() -> None:
    """Redis away for 20 s; all the time, agents read at different times which calls have ended."""
    clock = MovedClock()
    limits = QuotaLimits(rpm=600, rpd=500)
    server = MemoryQuotaServer(clock.utc_s)
    some = Fleet(
        agents=8,
        limits=limits,
        store_of=lambda number: server.store(f"agent {number}"),
        clock=clock,
        call_s=10.0,
    )
    for second in range(1, 100):
        server.away = 15 <= second < 35
        some.drive(float(second))
        ended = DayCount(day=1, calls=sum(agent.done for agent in some.agents))
        for number, agent in enumerate(some.agents):
            if second % 16 == 2 * number:
                agent.quotas.note_used(ROUTE, ended)

    assert len(some.provider.begun) == 500


def test_a_single_loss_is_none_of_many_though_several_quotas_show_it() -> None:
    """Quotas that were idle show the same loss one after the other."""
    clock = MovedClock()
    server = MemoryQuotaServer(clock.now_s)
    quotas = Quotas(lambda name: (name[1], RPM))
    store = server.store("a")
    duty = duty_of(quotas, store, clock, part=0.5)
    waiting = [WaitingCall(charge=Charge(tokens_in=1, tokens_out=1))]

    async def one_after_the_other() -> None:
        for route in "abcdef":
            quotas.set_waiting(route, waiting, clock.at_s)
            clock.at_s += 0.5
            await duty.sync(store)
            quotas.set_waiting(route, [], clock.at_s)

    asyncio.run(one_after_the_other())
    server.flush()
    asyncio.run(one_after_the_other())

    assert quotas.trouble == ""


def test_the_calls_of_a_day_hold_while_the_store_forgets() -> None:
    """The agents tell it what it answered before, and what their shares granted meanwhile."""
    clock, limits = MovedClock(), QuotaLimits(rpm=600, rpd=500)
    server = MemoryQuotaServer(clock.utc_s)
    some = Fleet(
        agents=8,
        limits=limits,
        store_of=lambda number: server.store(f"agent {number}"),
        clock=clock,
    )
    some.drive(15.0)
    server.forgets = True
    some.drive(45.0)
    server.forgets = False
    some.drive(100.0)

    assert len(some.provider.begun) == 500


def test_a_store_that_forgets_costs_little() -> None:
    """Redis flushed every ten seconds: nothing is granted twice."""
    some, server = fleet(8, RPM, window_s=2.0)
    for at_s in range(10, 130, 10):
        some.drive(float(at_s))
        server.flush()

    assert some.provider.refusals == []
    assert some.provider.calls(10.0, 120.0) >= 0.95 * 1100
    assert some.provider.fullest_minute() <= BOUND * 600


@pytest.mark.parametrize("agents", [1, 4])
@pytest.mark.parametrize("limits", [RPM, QuotaLimits(in_flight=20)])
def test_while_the_store_forgets_each_time_agents_keep_to_their_shares(
    agents: int, limits: QuotaLimits, caplog: pytest.LogCaptureFixture
) -> None:
    """A Redis that always evicts: most of the limit is used, and `status` says why not all."""
    caplog.set_level(logging.INFO)
    some, server = fleet(agents, limits, window_s=2.0)
    some.drive(80.0)
    usual = some.provider.calls(20.0, 80.0)
    server.forgets = True
    some.drive(150.0)
    waits = [agent.quotas.reasons(some.clock.at_s) for agent in some.agents]
    server.forgets = False
    some.drive(240.0)

    assert 0.75 <= some.provider.calls(90.0, 150.0) / usual <= 0.85
    assert {(wait.agents, wait.trouble) for (wait,) in waits} == {(0, WHAT_TO_DO)}
    assert 0.97 <= some.provider.calls(180.0, 240.0) / usual <= 1.03
    assert some.provider.refusals == []
    assert limits.rpm is None or some.provider.fullest_minute() <= BOUND * usual
    told = [line for line in caplog.messages if "forgets the limits" in line]
    assert len(told) == agents
    assert "set its maxmemory-policy to noeviction" in told[0]
    assert len([line for line in caplog.messages if "remembers the limits" in line]) == agents
    assert {wait.trouble for agent in some.agents for wait in agent.quotas.reasons(240)} == {""}


def test_answers_that_are_lost_grant_nothing_twice() -> None:
    """A third of the answers is lost: the store has granted, and answers so at the next try."""
    some, server = fleet(4, RPM)
    for step in range(600):
        server.loses_answers = step % 3 == 0
        some.drive(0.2 * step)

    assert some.provider.refusals == []
    assert some.provider.fullest_minute() <= BOUND * 600


def test_a_limit_that_is_set_too_high_is_found_by_refusals() -> None:
    """The provider takes half of what is configured: few calls are refused, most of it is used."""
    clock = MovedClock()
    server = MemoryQuotaServer(clock.now_s)
    some = Fleet(
        agents=4,
        limits=QuotaLimits(rpm=1200),
        store_of=lambda number: server.store(f"agent {number}"),
        clock=clock,
        provider=CountingProvider(RPM, 2.0),
    )
    some.drive(200.0)

    assert some.provider.calls(80.0, 200.0) >= 0.85 * 1200
    refused = sum(at_s >= 80.0 for at_s in some.provider.refusals)
    assert refused <= 0.1 * 1200


def test_an_agent_with_nothing_to_do_is_silent() -> None:
    """An idle agent tells once that it has ended, and asks nothing more."""
    some, server = fleet(1, RPM)
    some.drive(5.0)
    some.agents[0].idle = True
    some.drive(15.0)
    exchanges = server.exchanges
    some.drive(60.0)

    assert server.exchanges == exchanges


class SlowStore:
    """A store that needs a while for each answer."""

    def __init__(self, clock: MovedClock, takes_s: float) -> None:
        self._clock = clock
        self._takes_s = takes_s
        self.asked_s: list[float] = []

    async def exchange(self, requests: Sequence[QuotaRequest]) -> list[QuotaAnswer]:
        self.asked_s.append(self._clock.at_s)
        self._clock.at_s += self._takes_s
        flags = tuple(False for _ in requests[0].waiting)
        return [
            QuotaAnswer(
                granted=flags, seats=None, paused_s=0.0, accepted_share=1.0, agents=1, binding="rpm"
            )
        ]

    async def close(self) -> None: ...


class SleepingClock(MovedClock):
    """A clock that moves when its only sleeper sleeps."""

    async def sleep(self, delay_s: float) -> None:
        if self.at_s > 5.0:
            raise TimeoutError
        self.at_s += delay_s


@pytest.mark.parametrize(("takes_s", "every_s"), [(0.0, 0.5), (0.4, 0.5), (0.9, 0.95)])
def test_a_slow_store_is_asked_as_often(takes_s: float, every_s: float) -> None:
    """The pause counts from question to question, else a limit would be used less."""
    clock = SleepingClock()
    store = SlowStore(clock, takes_s)
    quotas = Quotas(lambda _name: ("key", RPM))
    quotas.set_waiting("route", [WaitingCall(charge=Charge(tokens_in=1, tokens_out=1))], 0.0)
    duty = duty_of(quotas, store, clock, part=1.0)
    with pytest.raises(TimeoutError):
        asyncio.run(duty._repeat(lambda: duty.sync(store), EXCHANGE_EVERY_S))

    first, second, *_ = store.asked_s
    assert second - first == pytest.approx(every_s)


def test_a_store_that_is_too_slow_for_its_grants_is_away(caplog: pytest.LogCaptureFixture) -> None:
    """Its grants are too old when they arrive, so the agent would stand still."""
    clock = MovedClock()
    slow = SlowStore(clock, 1.3)
    quotas = Quotas(lambda _name: ("key", RPM))
    waiting = [WaitingCall(charge=Charge(tokens_in=1, tokens_out=1))] * 9
    duty = duty_of(quotas, slow, clock, part=0.5)

    async def some_seconds() -> None:
        for _ in range(4):
            quotas.set_waiting(ROUTE, waiting, clock.at_s)
            await duty.sync(slow)
            await duty.keep_to_share()

    asyncio.run(some_seconds())

    assert quotas.room((LimitKind.ACCOUNT, ROUTE), clock.at_s)
    assert "Redis does not answer (its answers take longer than 1 s; " in caplog.text
