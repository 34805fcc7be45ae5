"""The limit of calls on a route, by its share of refusals, against models of real limiters."""

import random
from collections.abc import Callable

import pytest

from docllm.agent.ports.outcome import Outcome
from tests.support.limiters import (
    REFUSED,
    Counter,
    Dice,
    InFlight,
    Limiter,
    TokenBucket,
    Window,
)
from tests.support.routes import (
    GOOD,
    ROUTE,
    BusyAgent,
    call,
    failed,
    notice,
    permitted,
    routes,
    stopped,
)

PER_MINUTE = 300
Answer = Callable[[float, random.Random], tuple[float, Outcome]]


def driven(
    answer: Answer, until_s: float, *, slots: int = 64, step_s: float = 0.05, seed: int = 1
) -> BusyAgent:
    """Return an agent after so much time with endless tasks."""
    agent = BusyAgent(routes(slots), answer, slots, random.Random(seed))  # noqa: S311
    agent.drive(until_s, step_s)
    return agent


def test_a_token_bucket_without_headers_is_used_up() -> None:
    """64 slots use at least 95 % of nginx's 300 calls a minute, with few refusals."""
    bucket = TokenBucket()
    agent = driven(bucket, 300.0)

    assert agent.good(60.0, 300.0) >= 0.95 * 4 * PER_MINUTE
    assert bucket.refused(0.0, 300.0) <= 0.2 * agent.good(0.0, 300.0)


@pytest.mark.parametrize("start_s", [30.0, 31.4, 33.5])
def test_an_agent_takes_over_the_limit_that_another_leaves(start_s: float) -> None:
    """Without Redis a second agent gets little; a minute after the first left, it has most."""
    bucket = TokenBucket()
    first, second = BusyAgent(routes(), bucket, 64), BusyAgent(routes(), bucket, 64, now_s=start_s)
    for step in range(4800):
        now_s = step / 20
        if now_s < 120:
            first.drive(now_s)
        if now_s > start_s:
            second.drive(now_s)

    assert second.good(180.0, 240.0) >= 0.8 * PER_MINUTE


@pytest.mark.parametrize("slots", [8, 64])
@pytest.mark.parametrize("kind", [Window, Counter])
def test_a_limiter_that_counts_refusals_is_used(kind: type[Limiter], slots: int) -> None:
    """At least 85 % of 300 calls a minute are used, although refused calls are lost there."""
    limiter = kind()
    driven(limiter, 420.0, slots=slots)

    assert limiter.passed(0.0, 300.0) >= 0.85 * 5 * PER_MINUTE
    assert limiter.passed(120.0, 420.0) >= 0.8 * 5 * PER_MINUTE


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("share", "kept"), [(0.05, 0.82), (0.1, 0.75)])
def test_refusals_by_chance_cost_little(seed: int, share: float, kept: float) -> None:
    """With a share of all calls refused by chance, most of the throughput remains."""
    free, refusing = driven(Dice(0.0), 60.0, seed=seed), driven(Dice(share), 60.0, seed=seed)

    assert refusing.good(0.0, 60.0) >= kept * free.good(0.0, 60.0)


@pytest.mark.parametrize("seed", range(3))
def test_refusals_by_chance_cost_little_while_the_loop_is_often_busy(seed: int) -> None:
    """What would have begun while the loop was busy begins after it."""
    good = []
    for share in (0.0, 0.05):
        agent, pauses = driven(Dice(share, (0.2, 0.4)), 0.0, seed=seed), random.Random(seed)  # noqa: S311
        while agent.now_s < 60:
            step_s = pauses.choice([0.02] * 20 + [0.2] * 5 + [0.8] * 2 + [1.5])
            agent.drive(agent.now_s + step_s, step_s)
        good.append(agent.good(0.0, 60.0))

    assert good[1] >= 0.7 * good[0]


def test_hung_calls_and_refusals_cost_little_together() -> None:
    """One call in a hundred hangs for ten minutes and five are refused; the others go on."""

    def answer(now_s: float, rng: random.Random) -> tuple[float, Outcome]:
        return (600.0, failed("AMBIGUOUS")) if rng.random() < 0.01 else refusing(now_s, rng)

    refusing = Dice(0.05)
    free, faulty = driven(Dice(0.0), 20.0), driven(answer, 20.0)

    assert faulty.good(0.0, 20.0) >= 0.75 * free.good(0.0, 20.0)


def test_a_provider_that_had_no_room_for_a_while_is_soon_used_fully() -> None:
    """After half a minute of refusals, the first answer leads to twice as many calls each time."""

    def answer(now_s: float, rng: random.Random) -> tuple[float, Outcome]:
        return (0.01, REFUSED) if now_s < 30 else (rng.uniform(0.5, 1.5), GOOD)

    agent = driven(answer, 60.0)

    assert agent.calls(0.0, 30.0) <= 64 + 20
    assert agent.good(50.0, 60.0) >= 0.9 * 10 * 64


def test_a_limit_of_concurrent_calls_is_used() -> None:
    """With a limit of sixteen calls at once, the mean over minutes is near it."""
    agent = driven(InFlight(lambda _: 16, (0.1, 2.0)), 240.0)

    assert agent.good(120.0, 240.0) >= 0.9 * 120 * 16 / 1.05


FALL_S, RETURN_S, END_S = 40.0, 80.0, 120.0
SLOW_S = 3.5, 6.5


@pytest.mark.parametrize("latency_s", [(0.7, 1.3), (0.1, 2.0)])
@pytest.mark.parametrize("seed", range(2))
def test_a_capacity_that_falls_and_returns_is_followed(
    latency_s: tuple[float, float], seed: int
) -> None:
    """From 200 calls at once to 50 and back: ten seconds each, and few calls are refused."""
    server = InFlight(lambda now_s: 50 if FALL_S <= now_s < RETURN_S else 200, latency_s)
    agent = driven(server, END_S, slots=400, seed=seed)
    each_s = sum(latency_s) / 2

    for from_s, to_s, most in ((FALL_S, RETURN_S, 50), (RETURN_S, END_S, 200)):
        new_level_s = from_s + 10.0
        assert agent.good(new_level_s, to_s) >= 0.9 * most / each_s * (to_s - new_level_s)
        assert server.refused(from_s, to_s) <= 0.07 * len(server.between(from_s, to_s))
    assert server.refused(FALL_S, END_S) <= 0.05 * len(server.between(FALL_S, END_S))


@pytest.mark.parametrize("seed", range(2))
def test_a_capacity_for_slow_answers_is_followed(seed: int) -> None:
    """Answers of five seconds: 200 calls at once become 50 and 200 again, in ten seconds each."""
    server = InFlight(lambda now_s: 50 if 60 <= now_s < 120 else 200, SLOW_S)
    driven(server, 180.0, slots=400, seed=seed)

    assert server.passed(67.0, 72.0) >= 0.75 * 50  # the others have ended
    assert server.passed(70.0, 120.0) >= 0.9 * 50 / 5.0 * 50
    assert server.refused(60.0, 120.0) <= 0.1 * len(server.between(60.0, 120.0))
    assert server.passed(130.0, 180.0) >= 0.9 * 200 / 5.0 * 50
    assert server.refused(120.0, 180.0) <= 0.04 * len(server.between(120.0, 180.0))


@pytest.mark.parametrize("seed", range(2))
def test_slots_are_filled_at_the_rate_of_answers(seed: int) -> None:
    """A level that reaches the slots lets no crowd of calls begin at once.

    Otherwise a server with room for half of the slots would refuse the rest of that crowd.
    """
    server = InFlight(lambda now_s: 50 if 120 <= now_s < 240 else 200, (10.0, 20.0))
    driven(server, 400.0, slots=400, seed=seed)

    assert server.refused(240.0, 400.0) <= 0.03 * len(server.between(240.0, 400.0))


def test_refusals_by_chance_cost_little_with_slow_answers() -> None:
    """Rounds that are shorter than an answer do not take refusals by chance for a limit."""
    free, refusing = Dice(0.0, SLOW_S), Dice(0.05, SLOW_S)
    alone, refused = driven(free, 180.0), driven(refusing, 180.0)

    assert refused.good(0.0, 180.0) >= 0.8 * alone.good(0.0, 180.0)


@pytest.mark.parametrize("agents", [4, 8])
def test_several_agents_use_up_one_token_bucket(agents: int) -> None:
    """Agents that know nothing of each other use at least 95 % of a limit together."""
    bucket = TokenBucket()
    together(bucket, agents, 180.0)

    assert bucket.passed(60.0, 180.0) >= 0.95 * 2 * PER_MINUTE
    assert bucket.refused(60.0, 180.0) <= 0.5 * bucket.passed(60.0, 180.0)


def together(limiter: Limiter, agents: int, until_s: float) -> None:
    """Let agents with endless tasks call one provider."""
    all_agents = [
        BusyAgent(routes(64), limiter, 64, random.Random(number))  # noqa: S311
        for number in range(agents)
    ]
    for step in range(1, round(until_s * 20)):
        for agent in all_agents:
            agent.drive(step / 20)


def test_a_refused_share_lowers_the_limit_by_half_of_it() -> None:
    """A refused share lowers the limit by half of it, once for each answer time.

    If 16 of 64 calls are refused, one eighth fewer calls run then, apart from the growth.
    """
    router = routes()
    permits = [permitted(router, 100.0, task_id) for task_id in range(64)]
    for number, permit in enumerate(permits):
        router.ended(permit, REFUSED if number % 4 == 0 else GOOD, 101.0 + number / 16)

    began = sum(router.begin(ROUTE, task_id, 106.0) is not None for task_id in range(64))
    assert 64 * 7 / 8 <= began <= 64 * 7 / 8 * 1.03 + 1
    assert notice(router, 106.0) == ""


def test_a_clean_route_has_no_limit_but_its_slots() -> None:
    """A route without refusals has no limit but its slots, whatever its rate; nothing is paced."""
    router = routes()
    for number in range(1000):
        call(router, GOOD, 100.0 + number / 1000)

    assert router.room(ROUTE, 101.0, 0, 64) == 64


def test_a_refusal_while_a_route_starts_slowly_costs_little() -> None:
    """A refusal by chance during slow start slows nothing.

    After a stop, one call goes first.
    """
    router = stopped()
    call(router, GOOD, 102.0)
    call(router, REFUSED, 102.1)
    for number in range(8):
        call(router, GOOD, 102.2 + number / 10)

    assert router.room(ROUTE, 103.0, 0, 64) == 64


def test_a_limiter_that_is_gone_is_soon_forgotten() -> None:
    """Two minutes after a limiter of 20 calls a minute is gone, all slots are used.

    The limiter was in force for five minutes.
    """
    bucket = TokenBucket((1.0, 1.0), rate=20 / 60, burst=1.0)

    def answer(now_s: float, rng: random.Random) -> tuple[float, Outcome]:
        return bucket(now_s, rng) if now_s < 300 else (1.0, GOOD)

    agent = driven(answer, 450.0)

    assert agent.good(120.0, 300.0) >= 0.65 * 60
    assert agent.good(420.0, 450.0) >= 0.9 * 30 * 64
