"""The sweep: waiting tasks are compared with what their topics still carry."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.ledger import sweeping
from agent.maintenance.sweeper import SWEPT_MOST, SWEPT_PER_S, Sweeper
from producer.ports import Backlog
from schemas.task.lanes import DESTINATIONS
from schemas.task.states import Status
from schemas.task.topics import Topics


def sweeper(
    oldest_ms: Mapping[str, int | None] | int | None,
    *,
    tiers: tuple[str, ...] = (),
    pages: list[int] | None = None,
    slept_s: list[float] | None = None,
) -> Sweeper:
    """Return a sweeper over topics with these oldest records, by the group that reads them."""

    async def backlog(readers: str, _topics: Any) -> Backlog:
        oldest = oldest_ms.get(readers) if isinstance(oldest_ms, Mapping) else oldest_ms
        return Backlog(1, oldest, {})

    async def write(*_: Any) -> int:
        return (pages or [0]).pop(0)

    async def sleep(delay_s: float) -> None:
        if slept_s is not None:
            slept_s.append(delay_s)

    return Sweeper(
        transactions=cast("Any", SimpleNamespace(write=write)),
        clock=cast("Any", SimpleNamespace(sleep=sleep)),
        topics=Topics("g", tiers),
        admin=cast("Any", SimpleNamespace(backlog=backlog)),
        slack_s=600.0,
    )


# As the ledger has it.
@pytest.mark.parametrize(
    ("timestamp_ms", "time"),
    [(1 << 62, datetime(9999, 12, 31)), (-1, datetime(1970, 1, 1))],  # noqa: DTZ001
)
def test_a_record_of_any_time_ends_no_sweep(timestamp_ms: int, time: datetime) -> None:
    """A producer sets the time if the topic allows it, for example one in the year 300,000."""
    topics_by_status = asyncio.run(sweeper(timestamp_ms)._topics_by_status())

    assert {status_topics.horizon for status_topics in topics_by_status} == {time}


def test_pending_tasks_are_compared_with_the_oldest_record_of_tasks() -> None:
    """A record that waits in a tier for an hour says nothing about those of `tasks`."""
    oldest_ms = {"g": 5_000, "g.retry.1h": 1_000, "g.retry.30s": None}

    pending, retrying = asyncio.run(sweeper(oldest_ms, tiers=("30s", "1h"))._topics_by_status())

    assert (pending.status, pending.destinations) == (Status.PENDING, DESTINATIONS)
    assert pending.horizon == datetime(1970, 1, 1, 0, 0, 5)  # noqa: DTZ001 - as the ledger has it
    assert retrying.status is Status.RETRYING
    assert retrying.destinations == (*DESTINATIONS, "retry.30s", "retry.1h")
    assert retrying.horizon == datetime(1970, 1, 1, 0, 0, 1)  # noqa: DTZ001 - the same


def test_a_lost_topic_is_swept_at_a_bounded_rate() -> None:
    """A million tasks without records take minutes, because claims and settles share the ledger."""
    pages, slept_s = [sweeping.PAGE, sweeping.PAGE, 3, *[sweeping.PAGE] * 200], list[float]()
    slow = sweeper(None, pages=pages, slept_s=slept_s)

    assert asyncio.run(slow.sweep()) == 2 * sweeping.PAGE + 3
    assert slept_s == [sweeping.PAGE / SWEPT_PER_S] * 2
    assert asyncio.run(slow.sweep()) == SWEPT_MOST, (
        "where the records stand is asked anew after so many"
    )
