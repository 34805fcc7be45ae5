"""The sweep: waiting tasks are compared with what their topics still carry."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest

from docllm.agent.ledger.recovery import sweeping
from docllm.agent.maintenance.repair.sweeper import (
    MAX_SWEPT,
    MAX_WALKED,
    STEP_PAUSE_S,
    SWEPT_PER_S,
    Sweeper,
)
from docllm.producer.ports import Backlog, TopicAdmin
from docllm.schemas.ledger.transactions import Transactions
from docllm.schemas.runtime.clock import Clock
from docllm.schemas.task.record.lanes import DESTINATIONS
from docllm.schemas.task.record.topics import Topics
from docllm.schemas.task.states import Status
from tests.support.doubles import double_of


def sweeper(
    oldest_ms: Mapping[str, int | None] | int | None,
    *,
    tiers: tuple[str, ...] = (),
    pages: list[int] | None = None,
    steps: list[tuple[int, sweeping.SweepCursor | None]] | None = None,
    slept_s: list[float] | None = None,
    asked: list[tuple[Any, ...]] | None = None,
) -> Sweeper:
    """Return a sweeper over topics with these oldest records, by the group that reads them.

    `pages` and `steps` are what the ledger finds; `asked` gets what it is asked for in a walk.
    """

    async def backlog(readers: str, _topics: Any) -> Backlog:
        oldest = oldest_ms.get(readers) if isinstance(oldest_ms, Mapping) else oldest_ms
        return Backlog(1, oldest, {})

    async def write(work: Any, *given: Any) -> Any:
        if work is sweeping.replace_lost_records:
            return (pages or [0]).pop(0)
        if asked is not None:
            asked.append(given)
        return (steps or [(0, None)]).pop(0)

    async def sleep(delay_s: float) -> None:
        if slept_s is not None:
            slept_s.append(delay_s)

    return Sweeper(
        transactions=double_of(Transactions, write=write),
        clock=double_of(Clock, sleep=sleep),
        topics=Topics("g", tiers),
        admin=double_of(TopicAdmin, backlog=backlog),
        slack_s=600.0,
    )


# As the ledger has it.
@pytest.mark.parametrize(
    ("timestamp_ms", "time"),
    [(1 << 62, datetime(9999, 12, 31)), (-1, datetime(1970, 1, 1))],  # noqa: DTZ001
)
def test_a_record_of_any_time_ends_no_sweep(timestamp_ms: int, time: datetime) -> None:
    """A producer sets the time if the topic allows it, for example one in the year 300,000."""
    asked: list[tuple[Any, ...]] = []
    asyncio.run(sweeper(timestamp_ms, asked=asked).sweep())

    assert {carrier.horizon for _, carriers, *_ in asked for carrier in carriers} == {time}


def test_pending_tasks_are_compared_with_the_oldest_record_of_tasks() -> None:
    """A record that waits in a tier for an hour says nothing about those of `tasks`."""
    oldest_ms = {"tasks": 5_000, "tasks.bulk": None, "retry.1h": 1_000, "retry.30s": None}
    names = (*DESTINATIONS, "retry.30s", "retry.1h")

    pending, retrying = sweeper(None)._topics_by_status(
        {name: oldest_ms.get(name) for name in names}
    )

    assert (pending.status, pending.destinations) == (Status.PENDING, DESTINATIONS)
    assert pending.horizon == datetime(1970, 1, 1, 0, 0, 5)  # noqa: DTZ001 - as the ledger has it
    assert retrying.status is Status.RETRYING
    assert retrying.destinations == (*DESTINATIONS, "retry.30s", "retry.1h")
    assert retrying.horizon == datetime(1970, 1, 1, 0, 0, 1)  # noqa: DTZ001 - the same


def test_a_lost_topic_is_swept_at_a_bounded_rate() -> None:
    """A million tasks without records take minutes, because claims and settles share the ledger."""
    pages, slept_s = [sweeping.PAGE, sweeping.PAGE, 3, *[sweeping.PAGE] * 200], list[float]()
    asked: list[tuple[Any, ...]] = []
    slow = sweeper(None, pages=pages, slept_s=slept_s, asked=asked)

    assert asyncio.run(slow.sweep()) == 2 * sweeping.PAGE + 3
    assert slept_s == [sweeping.PAGE / SWEPT_PER_S] * 2
    assert asyncio.run(slow.sweep()) == MAX_SWEPT, (
        "where the records stand is asked anew after so many"
    )
    assert len(asked) == 2, "no walk follows a sweep that has found so many"


def test_each_topic_has_a_horizon_of_its_own() -> None:
    """A tier that holds its records for an hour says nothing about those of a lane."""
    asked: list[tuple[Any, ...]] = []
    oldest_ms = {"g": None, "g.retry.1h": 1_000}

    asyncio.run(sweeper(oldest_ms, tiers=("1h",), asked=asked).sweep())

    horizons = [
        {carrier.destinations: carrier.horizon for carrier in carriers} for _, carriers, *_ in asked
    ]
    an_hour_ago = datetime(1970, 1, 1, 0, 0, 1)  # noqa: DTZ001 - as the ledger has it
    assert (
        horizons
        == [dict.fromkeys((name,) for name in DESTINATIONS) | {("retry.1h",): an_hour_ago}] * 2
    )
    assert [carriers[0].status for _, carriers, *_ in asked] == [Status.PENDING, Status.RETRYING]


def test_a_walk_is_bounded_and_goes_on_in_the_next_sweep() -> None:
    """A million waiting tasks are looked at in several sweeps."""
    place = sweeping.SweepCursor(datetime(2026, 1, 1), 7)  # noqa: DTZ001 - as the ledger has it
    most = MAX_WALKED // sweeping.STEP
    asked: list[tuple[Any, ...]] = []
    slept_s: list[float] = []
    steps = [(0, place)] * (most - 1) + [(400, place), (0, None), (1, None), (0, None), (0, None)]
    walker = sweeper(None, steps=steps, slept_s=slept_s, asked=asked)

    assert [asyncio.run(walker.sweep()) for _ in range(3)] == [400, 1, 0]
    assert slept_s == [STEP_PAUSE_S] * (most - 1) + [400 / SWEPT_PER_S]
    after = [given[2] for given in asked]
    assert after == [None, *[place] * (most - 1), None, place, None, None, None]
