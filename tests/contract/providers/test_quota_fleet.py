"""A thousand agents that share one account over one real Redis."""

from bench.quotas import ClockedFleet
from docllm.schemas.settings.quota import QuotaLimits
from tests.servers import Redis


async def test_a_thousand_agents_use_a_limit_and_no_more(redis_server: Redis) -> None:
    """Nearly all of it is used, no call is refused, and the sums of seats stay right."""
    limits = QuotaLimits(rpm=30_000, in_flight=3000)
    fleet = ClockedFleet(url=redis_server.url, agents=1000, limits=limits)
    await fleet.driven(6.0)
    await fleet.close()

    assert fleet.provider.refusals == []
    assert 0.95 * 1500 <= fleet.provider.calls(3.0, 6.0) <= 1.02 * 1500
    assert fleet.provider.most <= 3000
    assert sum(agent.done > 0 for agent in fleet.agents) >= 900


async def test_more_agents_than_seats_use_them_all(redis_server: Redis) -> None:
    """Five agents with two calls at once hand them on: never more, and few of them unused."""
    fleet = ClockedFleet(url=redis_server.url, agents=5, limits=QuotaLimits(in_flight=2))
    await fleet.driven(270.0)  # each 20 s it is chance who asks first, and gets them
    await fleet.close()

    assert fleet.provider.refusals == []
    assert fleet.provider.most == 2
    assert fleet.provider.calls(10.0, 270.0) >= 0.85 * 2 * 260
    assert all(agent.done for agent in fleet.agents)
