"""Agents keep the limits of an account, on a server that enforces them by itself."""

import os
import signal
from collections.abc import Callable

import pytest
import redis

from docllm.schemas.runtime.clock import SystemClock
from tests.integration.providers.limited_runs import started
from tests.integration.support.deployment import Deployment, task_line
from tests.integration.support.programs import RehearsalLLM, most_at_once
from tests.invariants.evidence import Call
from tests.servers import Redis

RPM = 600
SPAN_S = 15.0
LATENCY = ("--latency", "0.1-0.5")


def begun(llm: RehearsalLLM, from_s: float, to_s: float) -> list[Call]:
    """Return the calls that began in this time."""
    return [call for call in llm.calls() if from_s <= call.start_s < to_s]


def used(deployment: Deployment, llm: RehearsalLLM) -> float:
    """Return which part of the limit is used, measured from now on."""
    from_s = SystemClock().now_s()
    to_s = from_s + SPAN_S
    deployment.until(lambda: SystemClock().now_s() >= to_s, "the span to pass")
    calls = [call for call in begun(llm, from_s, to_s) if call.status != 429]
    return len(calls) / (RPM / 60 * SPAN_S)


@pytest.fixture
def limited(embedded: Deployment, settings: Callable[[Deployment, str], None]) -> Deployment:
    """An installation with a limit, and 3,000 tasks."""
    settings(embedded, f"[llm]\nrpm = {RPM}\n")
    embedded.llm("--rpm", str(RPM), *LATENCY)
    embedded.load(3000)
    return embedded


def test_agents_use_the_limit_together_and_are_never_refused(
    limited: Deployment, redis_server: Redis
) -> None:
    """The agents share the limit by Redis, and `status` says what they wait for."""
    limited.environ["DOCLLM_REDIS_URL"] = redis_server.url
    llm = started(limited, 3)

    assert 0.85 <= used(limited, llm) <= 1.02
    assert "default waits for its rpm: 600 per minute, " in limited.producer("status")
    assert [call for call in llm.calls() if call.status == 429] == []
    limits = "limits: default: rpm = 600; all agents together keep them, by Redis"
    assert limits in limited.run("producer", "check").out


def test_a_killed_agent_and_lost_redis_data_leave_the_limit_in_use(
    limited: Deployment, redis_server: Redis
) -> None:
    """The other agents take over what the dead one had, and nothing is taken twice."""
    limited.environ["DOCLLM_REDIS_URL"] = redis_server.url
    llm = started(limited, 3)

    limited.kill(limited.agents[0])
    client = redis.Redis.from_url(redis_server.url)
    client.flushall()

    assert 0.8 <= used(limited, llm) <= 1.02
    assert [call for call in llm.calls() if call.status == 429] == []


def test_while_redis_is_frozen_the_share_holds(limited: Deployment, redis_server: Redis) -> None:
    """No call waits for Redis, and when it answers, the limit is shared again."""
    limited.environ["DOCLLM_REDIS_URL"] = redis_server.url
    llm = started(limited, 2)

    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        frozen = used(limited, llm)
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)

    assert 0.45 <= frozen <= 0.85  # of which the first seconds pass before the share holds
    assert 0.8 <= used(limited, llm) <= 1.02
    assert [call for call in llm.calls() if call.status == 429] == []


def test_without_redis_each_agent_keeps_to_its_partitions(limited: Deployment) -> None:
    """Together they stay below the limit, since partitions may move at any time."""
    llm = started(limited, 2)

    assert 0.6 <= used(limited, llm) <= 0.85
    assert [call for call in llm.calls() if call.status == 429] == []


def test_a_tenant_has_so_many_calls_at_once_in_all_agents(
    embedded: Deployment, settings: Callable[[Deployment, str], None], redis_server: Redis
) -> None:
    """The tasks of other tenants go past it, and a batch still ends."""
    settings(embedded, "[tenants.acme]\nin_flight = 2\n")
    embedded.environ["DOCLLM_REDIS_URL"] = redis_server.url
    llm = embedded.llm("--latency", "0.5")
    embedded.producer(
        "load",
        str(
            embedded.write_lines(
                task_line(number, tenant="acme" if number < 20 else "other") for number in range(80)
            )
        ),
    )

    embedded.until_done(agents=2)

    ours = {f"tasks/t{number}" for number in range(20)}
    calls = [call for call in llm.calls() if call.name in ours]
    assert len(calls) == 20
    assert most_at_once(calls) <= 2
    assert most_at_once(llm.calls()) > 4


def test_a_tenant_has_its_calls_where_there_are_more_agents(
    embedded: Deployment, settings: Callable[[Deployment, str], None], redis_server: Redis
) -> None:
    """Five agents take turns with its two calls: never more at once, and seldom fewer."""
    settings(embedded, "[tenants.acme]\nin_flight = 2\n")
    embedded.environ["DOCLLM_REDIS_URL"] = redis_server.url
    llm = embedded.llm("--latency", "0.5")
    lines = [task_line(number, tenant="acme") for number in range(60)]
    embedded.producer("load", str(embedded.write_lines(lines)))

    embedded.until_done(agents=5)

    calls = llm.calls()
    assert len(calls) == 60
    assert most_at_once(calls) == 2
    span_s = max(call.end_s or 0 for call in calls) - min(call.start_s for call in calls)
    assert sum((call.end_s or call.start_s) - call.start_s for call in calls) / span_s >= 1.2
