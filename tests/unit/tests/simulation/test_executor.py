"""Calls of a simulated executor end as real ones do."""

import random
from collections.abc import Coroutine
from typing import Any

from tests.simulation.eventloop import VirtualClock, VirtualLoop
from tests.simulation.executor import SimExecutor
from tests.simulation.store import AwayError
from tests.simulation.weather import Weather


def test_a_database_that_is_back_early_is_found_within_a_second() -> None:
    """An outage that ends early is noticed by everybody within a second."""
    loop = VirtualLoop(random.Random(1))  # noqa: S311 - protects nothing
    clock, weather = VirtualClock(loop), Weather(random.Random(1))  # noqa: S311 - the same
    weather.down_until_s["database"] = 60.0
    executor = SimExecutor(weather=weather, clock=clock)

    def ask() -> float:
        if weather.away_s("database", clock.now_s()):
            raise AwayError
        return clock.now_s()

    answered_s = _run(loop, _with(executor, ask, weather, clock))

    assert 5.0 <= answered_s <= 6.1


async def _with(executor: SimExecutor, ask: Any, weather: Weather, clock: VirtualClock) -> float:
    answer = executor(ask)
    await clock.sleep(5.0)
    weather.clear()
    return float(await answer)


def _run(loop: VirtualLoop, work: Coroutine[Any, Any, float]) -> float:
    try:
        return loop.run_until_complete(work)
    finally:
        loop.bury()
