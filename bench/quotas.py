"""What the grant store costs Redis, and how well many agents use one limit by it.

The agents and their provider run on a clock that moves as fast as they do; Redis is real, and says
itself how long it worked for a request.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import redis
from redis.asyncio import Redis as AsyncRedis

from bench.table import Figure
from docllm.schemas.settings.quota import QuotaLimits
from tests.servers import Redis
from tests.support.clocked_quota import clocked, set_clock
from tests.support.quota_fleet import CountingProvider, Fleet, MovedClock

_TICK_S = 0.2
_WARM_S, _SPAN_S = 4.0, 20.0
_REQUESTS_A_SECOND = 2.0
_GOAL = 0.98


class ClockedFleet(Fleet):
    """Agents with a real Redis that reads the fleet's clock."""

    def __init__(self, *, url: str, agents: int, limits: QuotaLimits, call_s: float = 1.0) -> None:
        self._admin = redis.Redis.from_url(url)
        self._shared = AsyncRedis.from_url(url)
        self._admin.flushall()
        super().__init__(
            agents=agents,
            limits=limits,
            store_of=lambda number: clocked(url, f"agent {number}", self._shared),
            clock=MovedClock(),
            provider=CountingProvider(limits, 2.0),
            call_s=call_s,
            slots=max(8, 1600 // agents),
        )

    async def driven(self, until_s: float) -> None:
        """Let time pass, for Redis too."""
        while self.clock.at_s < until_s:
            set_clock(self._admin, round(1e12 + self.clock.at_s * 1000))
            await super().driven(min(until_s, self.clock.at_s + _TICK_S))

    async def close(self) -> None:
        """Close the connections."""
        self._admin.close()
        await self._shared.aclose()

    def forget_work(self) -> None:
        """Let Redis count its work anew."""
        self._admin.config_resetstat()

    @property
    def work_us(self) -> float:
        """Return how long Redis worked for one request, in microseconds."""
        return float(self._admin.info("commandstats")["cmdstat_evalsha"]["usec_per_call"])


def measure(folder: Path, *, quick: bool) -> Iterator[Figure]:
    """Let fleets of several sizes use one limit of 6,000 requests a minute."""
    span_s = _SPAN_S / 4 if quick else _SPAN_S
    with Redis(folder=folder / "redis") as server:
        for agents in (8, 200) if quick else (8, 200, 1000):
            work_us, used, refused = asyncio.run(_use(server.url, agents, span_s))
            of = f"{agents} agents"
            yield Figure("Redis's work for a request about a quota", of, work_us, "us", None)
            core = 100 * work_us * agents * _REQUESTS_A_SECOND / 1e6
            yield Figure("the same, of one core of Redis", of, core, "%", None)
            yield Figure(
                "a limit of 6,000 requests a minute: used part", of, used, "", _GOAL, at_least=True
            )
            yield Figure("the same: refused calls", of, refused, "", 0)


async def _use(url: str, agents: int, span_s: float) -> tuple[float, float, int]:
    """Return Redis's work for a request, the used part of the limit, and the refused calls."""
    limits = QuotaLimits(rpm=6000)
    fleet = ClockedFleet(url=url, agents=agents, limits=limits)
    await fleet.driven(_WARM_S)
    fleet.forget_work()
    await fleet.driven(_WARM_S + span_s)
    used = fleet.provider.calls(_WARM_S, _WARM_S + span_s) / (6000 * span_s / 60)
    work_us, refused = fleet.work_us, len(fleet.provider.refusals)
    await fleet.close()
    return work_us, used, refused
