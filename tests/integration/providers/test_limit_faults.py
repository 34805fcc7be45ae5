"""No call is refused for a limit when an agent stands still, or Redis is slow, old or wrong."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest
import redis

from docllm.schemas.runtime.clock import SystemClock
from tests.integration.providers.limited_runs import passed, started
from tests.integration.support.deployment import Deployment
from tests.servers import Redis

RPM = 600
SPAN_S = 12.0
HOUR_MS = 3_600_000
SLOW_MS, EVERY_S = 300, 0.6
KEYS = "docllm:quota:*"


@pytest.fixture
def limited(
    embedded: Deployment, settings: Callable[[Deployment, str], None], redis_server: Redis
) -> Deployment:
    """An installation whose agents share a limit by Redis, with many tasks."""
    settings(embedded, f"[llm]\nrpm = {RPM}\n")
    embedded.environ["DOCLLM_REDIS_URL"] = redis_server.url
    embedded.llm("--rpm", str(RPM), "--limit-window", "3", "--latency", "0.1-0.5")
    embedded.load(3000)
    return embedded


@pytest.fixture
def client(redis_server: Redis) -> Iterator[redis.Redis]:
    """A connection of somebody else to the agents' Redis."""
    with redis.Redis.from_url(redis_server.url) as connected:
        yield connected


def used(
    deployment: Deployment, each: Callable[[float], object] = lambda _now_s: None
) -> tuple[float, int]:
    """Return which part of the limit is used from now on, and how many calls are refused."""
    (llm,) = deployment.llms
    from_s = SystemClock().now_s()
    passed(deployment, SPAN_S, each)
    calls = [call for call in llm.calls() if from_s <= call.start_s < from_s + SPAN_S]
    refused = sum(call.status == 429 for call in calls)
    return (len(calls) - refused) / (RPM / 60 * SPAN_S), refused


def test_an_agent_that_stands_still_with_grants_in_hand_uses_none_of_them(
    limited: Deployment,
) -> None:
    """The other agents take over the share of the frozen one; nothing is used twice."""
    started(limited, 3)
    frozen = limited.agents[0]

    with standing_still(frozen.signal):
        used(limited)  # its share is lost for some seconds
        without, refused = used(limited)
    assert (without >= 0.85, refused) == (True, 0), without
    again, refused = used(limited)
    assert (0.8 <= again <= 1.05, refused) == (True, 0), again


@contextmanager
def standing_still(send: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Stop an agent for a while."""
    send(signal.SIGSTOP)
    try:
        yield
    finally:
        send(signal.SIGCONT)


def test_redis_may_be_slow_old_or_have_a_wrong_clock(
    limited: Deployment, client: redis.Redis
) -> None:
    """Each trouble costs little of the limit, and no call is refused."""
    client.flushall()
    llm = started(limited, 2)
    dump = {key: client.dump(key) for key in client.keys(KEYS)}
    seen = {}

    seen["slow"] = used(limited, slowly(client))
    restore(client, dump)
    seen["restored from an old dump"] = used(limited)
    for name, by_ms in (("an hour ahead", -HOUR_MS), ("an hour back", HOUR_MS)):
        for key in client.keys("docllm:quota:*:account"):
            client.hincrby(key, "at", by_ms)
        seen[name] = used(limited)

    assert [name for name, (_, refused) in seen.items() if refused] == []
    assert [name for name, (part, _) in seen.items() if not 0.7 <= part <= 1.1] == [], seen
    assert [call for call in llm.calls() if call.status == 429] == []


def slowly(client: redis.Redis) -> Callable[[float], None]:
    """Return a step after which Redis answers late, about half of the time."""
    next_s = SystemClock().now_s()

    def step(now_s: float) -> None:
        nonlocal next_s
        if now_s >= next_s:
            next_s = now_s + EVERY_S
            client.client_pause(SLOW_MS)

    return step


def restore(client: redis.Redis, dump: Mapping[bytes | str, bytes | None]) -> None:
    """Put an old dump in the place of what Redis knows."""
    assert dump
    for key, value in dump.items():
        assert value is not None
        client.restore(key, 0, value, replace=True)
