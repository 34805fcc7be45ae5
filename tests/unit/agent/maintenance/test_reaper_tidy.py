"""The minutely duties of a reaper."""

import asyncio
from datetime import datetime
from typing import Any, cast

import pytest

from agent.ledger import leases, sweeping
from agent.maintenance.reaper import SWEPT_MOST, SWEPT_PER_S, Reaper, Sweep
from producer.ports import Backlog
from schemas.errors import DeniedError, UnreachableError
from schemas.task.states import Status
from schemas.task.topics import Topics


class Rested(Exception):  # noqa: N818 - not an error: the round is over
    """The reaper waits for its next round."""


class OneRound:
    """A clock without waits, a database that records its calls, and unreachable topics."""

    told = False  # as in an outage of Kafka

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def run(self, work: Any) -> frozenset[Any]:
        self.asked.append(work)
        return frozenset()

    def now_s(self) -> float:
        return 0.0

    async def write(self, work: Any, *_: Any) -> Any:
        return self.run(work)

    async def sleep(self, _seconds: float) -> None:
        raise Rested

    async def backlog(self, *_: Any) -> None:
        raise OSError("away")


def reaper(parts: OneRound, tiers: tuple[str, ...] = ()) -> Reaper:
    shared = dict.fromkeys(
        ("transactions", "clock", "admin", "relay", "heartbeat", "kafka"), cast("Any", parts)
    )
    woken = Sweep(600.0, asyncio.Event())
    return Reaper(
        **shared,
        topics=Topics("g", tiers),
        locks=None,
        sweep=woken,
        agents_gone=lambda _: None,
        finished=dict,
    )


# As the ledger has it.
@pytest.mark.parametrize(
    ("timestamp_ms", "time"),
    [(1 << 62, datetime(9999, 12, 31)), (-1, datetime(1970, 1, 1))],  # noqa: DTZ001
)
def test_a_record_of_any_time_ends_no_reaper(timestamp_ms: int, time: datetime) -> None:
    """A record with any timestamp ends no reaper.

    A producer sets the time if the topic allows it, for example one in the year 300,000.
    """
    parts = OneRound()

    async def backlog(*_: Any) -> Backlog:
        return Backlog(1, timestamp_ms, {})

    parts.backlog = backlog  # type: ignore[method-assign, assignment]

    assert {one.horizon for one in asyncio.run(reaper(parts)._carried())} == {time}


def test_pending_tasks_are_compared_with_the_oldest_record_of_tasks() -> None:
    """Pending tasks are compared with the oldest record of the main topic.

    A record that waits in a tier for an hour says nothing about those of `tasks`.
    """
    parts, oldest_ms = OneRound(), {"g": 5_000, "g.retry.1h": 1_000, "g.retry.30s": None}

    async def backlog(consumer_group: str, _topics: Any) -> Backlog:
        return Backlog(1, oldest_ms[consumer_group], {})

    parts.backlog = backlog  # type: ignore[method-assign, assignment]
    tidy = reaper(parts, tiers=("30s", "1h"))

    pending, retrying = asyncio.run(tidy._carried())

    assert (pending.status, pending.destinations) == (Status.PENDING, ("tasks",))
    assert pending.horizon == datetime(1970, 1, 1, 0, 0, 5)  # noqa: DTZ001 - as the ledger has it
    assert retrying.status is Status.RETRYING
    assert retrying.destinations == ("tasks", "retry.30s", "retry.1h")
    assert retrying.horizon == datetime(1970, 1, 1, 0, 0, 1)  # noqa: DTZ001 - the same


def test_a_topic_that_takes_no_deletion_holds_up_no_other() -> None:
    """A topic that takes no deletion holds up no other.

    It was compacted by mistake, or has no leader.
    """
    parts, trimmed = OneRound(), []

    async def backlog(*_: Any) -> Backlog:
        return Backlog(0, None, {(f"g.{name}", 0): 5 for name in ("tasks", "inbox")})

    async def trim(below: dict[tuple[str, int], int]) -> None:
        if ("g.tasks", 0) in below:
            raise UnreachableError("the topic takes no deletion")
        trimmed.append(below)

    #  assignment, attr-defined].
    parts.backlog, parts.trim = backlog, trim  # type: ignore[method-assign,
    tidy = reaper(parts)
    tidy._finished = lambda: {("g.tasks", 0): 7, ("g.inbox", 0): 3}

    asyncio.run(tidy._trim())

    assert trimmed == [{("g.inbox", 0): 3}]


def test_each_round_sums_up_counts_and_forgets_agents_though_kafka_is_away() -> None:
    """Each round sums up counts and forgets agents, even while Kafka is away.

    A failing duty does not hold up the others.
    """
    parts = OneRound()
    with pytest.raises(Rested):
        asyncio.run(reaper(parts).tidy_forever())

    assert {sweeping.compact, leases.forget} <= set(parts.asked)


def test_a_missing_right_ends_the_reaper() -> None:
    """It is nothing that passes: the agent ends with it, and its exit code tells an operator."""
    parts = OneRound()

    def run(_work: Any) -> None:
        raise DeniedError("DELETE command denied to user 'app'@'10.0.0.5' for table 'tally'")

    parts.run = run  # type: ignore[method-assign, assignment]

    with pytest.raises(DeniedError, match="tally"):
        asyncio.run(reaper(parts).tidy_forever())


def test_a_lost_topic_is_swept_at_a_bounded_rate() -> None:
    """A lost topic is swept at a limited rate.

    A million tasks without records take minutes, because claims and settles share the ledger with
    the sweep.
    """
    parts, found, waited = OneRound(), [sweeping.PAGE, sweeping.PAGE, 3, *[sweeping.PAGE] * 200], []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def backlog(*_: Any) -> Backlog:
        return Backlog(0, None, {})

    parts.run = lambda _: found.pop(0)  # type: ignore[method-assign, assignment, return-value]
    parts.sleep, parts.backlog = sleep, backlog  # type: ignore[method-assign, assignment]

    assert asyncio.run(reaper(parts).sweep_once()) == 2 * sweeping.PAGE + 3
    assert waited == [sweeping.PAGE / SWEPT_PER_S] * 2
    assert asyncio.run(reaper(parts).sweep_once()) == SWEPT_MOST, (
        "where the records stand is asked anew after so many"
    )
