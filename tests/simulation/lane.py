"""A lane on virtual time: the call runs on the loop after a delay, and its answer comes after another one."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from schemas.clock import Clock
from tests.simulation.store import AwayError
from tests.simulation.weather import Weather

Result = TypeVar("Result")
_USUAL_S = 0.004


class SimLane:
    """One thread's worth of database calls. As on a real thread, cancelling who waits does not end the call."""

    def __init__(self, *, weather: Weather, clock: Clock, patient: bool = True) -> None:
        self._weather = weather
        self._clock = clock
        self._patient = patient  # a heartbeat's driver does not wait long for an answer
        self._turn = asyncio.Lock()

    async def __call__(self, call: Callable[[], Result]) -> Result:
        """Return what `call` returns, or raise what it raises."""
        return await asyncio.shield(asyncio.get_running_loop().create_task(self._run(call)))

    async def _run(self, call: Callable[[], Result]) -> Result:
        async with self._turn:
            result = await self._until_answered(call)
            if self._patient and self._weather.strikes("answer_lost"):
                # It was committed, nobody heard of it, and the transaction runs again when the server is back.
                await self._clock.sleep(self._weather.rng.choice((0.1, 1.0, 16.0)))
                result = await self._until_answered(call)
            await self._clock.sleep(self._weather.delay_s("database", _USUAL_S))
            return result

    async def _until_answered(self, call: Callable[[], Result]) -> Result:
        while True:
            await self._clock.sleep(self._weather.delay_s("database", _USUAL_S))
            try:
                return call()
            except AwayError:
                await self._clock.sleep(self._weather.away_s("database", self._clock.now_s()))
