"""The grant store of a run: Redis in memory, with the troubles that Redis has."""

import copy
import random
from collections.abc import Sequence

from docllm.agent.quota.grants import QuotaAnswer, QuotaRequest, RedisAwayError
from docllm.schemas.runtime.clock import Clock
from tests.simulation.eventloop import EPOCH_S
from tests.simulation.weather import Weather
from tests.support.lua_account import AccountBuckets

TIMEOUT_S = 1.0
_USUAL_S = 0.002


class SimRedis:
    """What all agents of a run share. Its clock may be wrong."""

    def __init__(self, *, rng: random.Random, weather: Weather) -> None:
        self._rng = rng
        self.weather = weather
        self.ahead_s = 0.0
        self.faults = 0  # that may cost a little more than the limits
        self.shares = False  # whether agents may have kept to shares
        self._accounts: dict[str, AccountBuckets] = {}
        self._dump: dict[str, AccountBuckets] = {}

    def answer(
        self, agent: str, requests: Sequence[QuotaRequest], now_s: float
    ) -> list[QuotaAnswer]:
        """Answer as the script does; sometimes a dump is written before."""
        if self._rng.random() < 0.02:
            self._dump = copy.deepcopy(self._accounts)
        now_ms = round((EPOCH_S + now_s + self.ahead_s) * 1000)
        return [
            self._accounts.setdefault(request.key, AccountBuckets()).exchange(
                agent, request, now_ms
            )
            for request in requests
        ]

    def flush(self) -> None:
        """Lose everything."""
        self.faults += 1
        self._accounts = {}

    def restore(self) -> None:
        """Go back to an old dump."""
        self.faults += 1
        self._accounts = copy.deepcopy(self._dump)

    def set_clock(self, by_s: float) -> None:
        """Set the clock."""
        self.faults += 1
        self.ahead_s += by_s


class SimGrantStore:
    """The port `GrantStore` of one agent. A request or its answer may be lost."""

    def __init__(self, *, redis: SimRedis, agent: str, clock: Clock) -> None:
        self._redis = redis
        self._agent = agent
        self._clock = clock

    async def exchange(self, requests: Sequence[QuotaRequest]) -> list[QuotaAnswer]:
        """Answer, unless Redis is away or too slow."""
        weather = self._redis.weather
        delay_s = weather.delay_s("redis", _USUAL_S)
        if weather.away_s("redis", self._clock.now_s()) or delay_s > TIMEOUT_S:
            await self._clock.sleep(TIMEOUT_S)
            raise RedisAwayError("no answer in time")
        await self._clock.sleep(delay_s)
        answers = self._redis.answer(self._agent, requests, self._clock.now_s())
        if weather.strikes("redis_answer_lost"):
            self._redis.faults += 1
            self._redis.shares = True
            await self._clock.sleep(TIMEOUT_S)
            raise RedisAwayError("the answer is lost")
        return answers

    async def close(self) -> None:
        """Do nothing."""
