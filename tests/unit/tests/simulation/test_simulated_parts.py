"""The simulation's own parts claim only what real ones would.

Promises are judged by what they say of a run.
"""

import random
from collections.abc import Coroutine
from typing import Any

from tests.simulation.broker import Broker
from tests.simulation.eventloop import VirtualClock, VirtualLoop
from tests.simulation.executor import SimExecutor
from tests.simulation.store import AwayError
from tests.simulation.weather import Weather


def test_a_strangers_commit_is_not_the_end_of_the_owners_work() -> None:
    """A foreign commit does not end the owner's work.

    An owner that has yet to reach that offset has work left, and none once it has.
    """
    # Protects nothing.
    broker = Broker(rng=random.Random(1), utc_s=lambda: 0.0, turn=lambda: 0)  # noqa: S311
    broker.create("t", 1)
    group = broker.group("g")
    group.take(("t", 0), "owner")

    group.commit(("t", 0), 3, "stranger")
    before = group.ahead()
    group.commit(("t", 0), 3, "owner")

    assert before == 1
    assert group.ahead() == 0


def test_who_begins_behind_a_strangers_commit_is_not_behind_it() -> None:
    """A new owner that begins at a foreign commit is not behind it."""
    # Protects nothing.
    broker = Broker(rng=random.Random(1), utc_s=lambda: 0.0, turn=lambda: 0)  # noqa: S311
    broker.create("t", 1)
    group = broker.group("g")

    group.commit(("t", 0), 3, "stranger")
    group.take(("t", 0), "owner")

    assert group.ahead() == 0


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
