"""The limit of calls on a route, by its share of refusals, against models of real limiters."""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from agent.outcome import Outcome
from tests.support.routes import (
    GOOD,
    ROUTE,
    BusyAgent,
    admitted,
    call,
    failed,
    notice,
    routes,
    snoozed,
    stopped,
)

REFUSED = snoozed("RATE", 1.5)
PER_MINUTE = 300
Answer = Callable[[float, random.Random], tuple[float, Outcome]]


@dataclass
class TokenBucket:
    """nginx `limit_req rate=300r/m burst=10 nodelay`.

    A refused call costs nothing, and no header says how long to wait.
    """

    rate: float = PER_MINUTE / 60
    burst: float = 11.0
    latency_s: float = 0.3
    _level: float = 11.0
    _at_s: float = 0.0
    refused: int = 0

    def __call__(self, now_s: float, _rng: random.Random) -> tuple[float, Outcome]:
        self._level = min(self.burst, self._level + (now_s - self._at_s) * self.rate)
        self._at_s = now_s
        if self._level < 1:
            self.refused += 1
            return 0.01, REFUSED
        self._level -= 1
        return self.latency_s, GOOD


@dataclass
class Window:
    """HAProxy `sc_http_req_rate(60s) gt 300`; a refused call counts too."""

    limit: int = PER_MINUTE
    latency_s: float = 0.3
    _seen_s: deque[float] = field(default_factory=deque)
    refused: int = 0

    def __call__(self, now_s: float, _rng: random.Random) -> tuple[float, Outcome]:
        self._seen_s.append(now_s)
        while self._seen_s[0] <= now_s - 60:
            self._seen_s.popleft()
        if len(self._seen_s) > self.limit:
            self.refused += 1
            return 0.01, REFUSED
        return self.latency_s, GOOD


@dataclass
class Dice:
    """A provider that refuses a share of all calls, whatever their rate."""

    share: float
    refused: int = 0

    def __call__(self, _now_s: float, rng: random.Random) -> tuple[float, Outcome]:
        if rng.random() < self.share:
            self.refused += 1
            return 0.01, REFUSED
        return rng.uniform(0.1, 2.0), GOOD


def driven(
    answer: Answer, until_s: float, *, slots: int = 64, step_s: float = 0.05, seed: int = 1
) -> BusyAgent:
    """Return an agent after so much time with endless tasks."""
    agent = BusyAgent(routes(slots), answer, slots, random.Random(seed))  # noqa: S311
    agent.drive(until_s, step_s)
    return agent


def test_a_token_bucket_without_headers_is_used_up() -> None:
    """64 slots use at least 95 % of nginx's 300 calls a minute.

    There is less than one refusal for five answers.
    """
    bucket = TokenBucket()
    agent = driven(bucket, 300.0)

    assert agent.good(60.0, 300.0) >= 0.95 * 4 * PER_MINUTE
    assert bucket.refused <= 0.2 * agent.good(0.0, 300.0)


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
def test_a_window_that_counts_refusals_is_used(slots: int) -> None:
    """At least 85 % of HAProxy's 300 calls a minute are used.

    Refused calls are lost there, so pauses must be left alone.
    """
    agent = driven(Window(), 420.0, slots=slots)

    assert agent.good(0.0, 420.0) >= 0.85 * 7 * PER_MINUTE


@pytest.mark.parametrize("seed", range(3))
def test_refusals_by_chance_cost_little(seed: int) -> None:
    """With 5 % of all calls refused by chance, at least 85 % of the throughput remains."""
    free, refusing = driven(Dice(0.0), 60.0, seed=seed), driven(Dice(0.05), 60.0, seed=seed)

    assert refusing.good(0.0, 60.0) >= 0.85 * free.good(0.0, 60.0)


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
    ends_s: list[float] = []

    def answer(now_s: float, rng: random.Random) -> tuple[float, Outcome]:
        ends_s[:] = [end_s for end_s in ends_s if end_s > now_s]
        if len(ends_s) >= 16:
            return 0.01, REFUSED
        latency_s = rng.uniform(0.1, 2.0)
        ends_s.append(now_s + latency_s)
        return latency_s, GOOD

    assert driven(answer, 240.0).good(120.0, 240.0) >= 0.8 * 120 * 16 / 1.05


def test_a_refused_share_lowers_the_limit_by_half_of_it() -> None:
    """A refused share lowers the limit by half of it, once for each answer time.

    If 16 of 64 calls are refused, one eighth fewer calls run then, apart from the growth.
    """
    table = routes()
    tickets = [admitted(table, 100.0, task_id) for task_id in range(64)]
    for number, ticket in enumerate(tickets):
        table.ended(ticket, REFUSED if number % 4 == 0 else GOOD, 101.0 + number / 16)

    began = sum(table.admit(ROUTE, task_id, 106.0) is not None for task_id in range(64))
    assert 64 * 7 / 8 <= began <= 64 * 7 / 8 * 1.03 + 1
    assert notice(table, 106.0) == ""


def test_a_clean_route_has_no_limit_but_its_slots() -> None:
    """A route without refusals has no limit but its slots, whatever its rate; nothing is paced."""
    table = routes()
    for number in range(1000):
        call(table, GOOD, 100.0 + number / 1000)

    assert table.room(ROUTE, 101.0, 0, 64) == 64


def test_a_refusal_while_a_route_starts_slowly_costs_little() -> None:
    """A refusal by chance during slow start slows nothing.

    After a stop, one call goes first.
    """
    table = stopped()
    call(table, GOOD, 102.0)
    call(table, REFUSED, 102.1)
    for number in range(8):
        call(table, GOOD, 102.2 + number / 10)

    assert table.room(ROUTE, 103.0, 0, 64) == 64


def test_a_limiter_that_is_gone_is_soon_forgotten() -> None:
    """Two minutes after a limiter of 20 calls a minute is gone, all slots are used.

    The limiter was in force for five minutes.
    """
    bucket = TokenBucket(rate=20 / 60, burst=1.0, latency_s=1.0)

    def answer(now_s: float, rng: random.Random) -> tuple[float, Outcome]:
        return bucket(now_s, rng) if now_s < 300 else (1.0, GOOD)

    agent = driven(answer, 450.0)

    assert agent.good(120.0, 300.0) >= 0.65 * 60
    assert agent.good(420.0, 450.0) >= 0.9 * 30 * 64
