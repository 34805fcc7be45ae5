"""An agent on a clock through whole outages: attempts, calls, and time to full speed."""

import random

import pytest

from docllm.agent.ports.outcome import Outcome
from tests.support.routes import GOOD, ROUTE, BusyAgent, failed, routes, snoozed

FROM_S, TO_S = 6.0, 66.0
LATENCY_S = 0.19  # not a whole number of steps, so that rounding does not lengthen some calls


def away(now_s: float) -> bool:
    """Return whether the provider is down."""
    return FROM_S <= now_s < TO_S


def unavailable(now_s: float, _rng: random.Random) -> tuple[float, Outcome]:
    """Answer 503 at once."""
    return (0.05, failed()) if away(now_s) else (LATENCY_S, GOOD)


def hangs(now_s: float, _rng: random.Random) -> tuple[float, Outcome]:
    """Give no answer until the call's own limit."""
    return (10.0, failed("AMBIGUOUS")) if away(now_s) else (LATENCY_S, GOOD)


def cuts(now_s: float, rng: random.Random) -> tuple[float, Outcome]:
    """Accept the connection, and cut it after some time."""
    return (rng.random() * 2, failed("AMBIGUOUS")) if away(now_s) else (LATENCY_S, GOOD)


def limited(now_s: float, _rng: random.Random) -> tuple[float, Outcome]:
    """Answer 429 with a Retry-After of 20 s."""
    return (0.05, snoozed("RATE", 20.0)) if away(now_s) else (LATENCY_S, GOOD)


def unpaid(now_s: float, _rng: random.Random) -> tuple[float, Outcome]:
    """Answer 402."""
    return (0.05, snoozed("MONEY", 30.0)) if away(now_s) else (LATENCY_S, GOOD)


@pytest.mark.parametrize(
    ("provider", "slots"),
    [
        (unavailable, 1),
        (unavailable, 8),
        (unavailable, 64),
        (unavailable, 500),
        (hangs, 64),
        (cuts, 64),
        (cuts, 3),
    ],
)
def test_an_outage_counts_only_the_failures_that_stopped_the_route(
    provider: object, slots: int
) -> None:
    """An outage counts at most 10 attempts, causes no storm of calls, and ends within 5 s.

    After its end, the agent is back at full speed within that time.
    """
    agent = BusyAgent(routes(slots), provider, slots)  # type: ignore[arg-type]
    agent.drive(75.0)

    assert agent.counted() <= min(10, max(3, slots))
    assert agent.calls(FROM_S, TO_S) <= slots + 30
    assert agent.most_while_closed == 1
    assert agent.good(TO_S + 5.0, TO_S + 9.0) >= 0.9 * agent.good(2.0, 6.0)


def test_a_provider_that_asks_for_time_is_left_alone() -> None:
    """A provider that asks for time gets one call per 2 s; nothing counts and nothing stops.

    The agent is at full speed after 5 s.
    """
    agent = BusyAgent(routes(64), limited, 64)
    agent.drive(90.0)

    assert agent.counted() == 0
    assert agent.calls(FROM_S, TO_S) <= 64 + 34
    assert agent.good(TO_S + 5.0, TO_S + 9.0) >= 0.9 * agent.good(2.0, 6.0)


@pytest.mark.parametrize("lasts_s", [25.0, 60.0, 90.0])
def test_a_rate_that_lasted_a_minute_is_reached_soon_after_refusals(lasts_s: float) -> None:
    """No limit per minute is below such a rate, so all slots are busy again after 5 s.

    That includes up to 2 s before the call that is tried, and the second that it takes.
    """
    slots, from_s = 256, 70.0
    to_s = from_s + lasts_s

    def answer(now_s: float, rng: random.Random) -> tuple[float, Outcome]:
        if from_s <= now_s < to_s:
            return 0.05, snoozed("RATE", 2.0)
        return rng.uniform(0.8, 1.2), GOOD

    agent = BusyAgent(routes(slots), answer, slots)
    agent.drive(to_s + 7.0)

    assert agent.calls(to_s + 5.0, to_s + 7.0) >= 0.9 * agent.calls(from_s - 4.0, from_s - 2.0)


def test_an_unpaid_account_is_left_alone() -> None:
    """An unpaid account is parked, tried each minute, and runs again by itself."""
    agent = BusyAgent(routes(64), unpaid, 64)
    agent.drive(140.0)

    assert agent.counted() == 0
    assert agent.calls(FROM_S, TO_S) <= 64 + 1
    assert agent.good(132.0, 136.0) >= 0.9 * agent.good(2.0, 6.0)


def test_a_firewall_that_refuses_some_documents_does_not_park_the_route() -> None:
    """A firewall that refuses one document in ten does not stop the other tasks.

    By chance, three refusals in a row come every few seconds.
    """
    agent = BusyAgent(
        routes(64),
        lambda _now_s, rng: (LATENCY_S, snoozed("AUTH", 1.5) if rng.random() < 0.1 else GOOD),
        64,
    )
    agent.drive(60.0)

    assert agent.good(0.0, 60.0) >= 0.85 * agent.calls(0.0, 60.0)
    assert agent.good(56.0, 60.0) >= 0.85 * 4.0 * 64 / 0.2


def test_independent_failures_hardly_ever_stop_a_route() -> None:
    """In 100,000 calls with 30 % independent failures, the route stops hardly ever.

    With 64 calls in flight, a run of ten is to be expected 0.4 times, half of 200 never.
    """
    router = routes(64)
    rng, stops, running = random.Random(1), 0, []  # noqa: S311 - repeatable runs
    for number in range(100_000):
        now_s = number / 100
        running.append(router.begin(ROUTE, number, now_s))
        if len(running) == 64 and (permit := running.pop(rng.randrange(64))) is not None:
            was = router.closed(ROUTE, now_s)
            router.ended(permit, failed() if rng.random() < 0.3 else GOOD, now_s)
            stops += router.closed(ROUTE, now_s) and not was
    assert stops <= 3
