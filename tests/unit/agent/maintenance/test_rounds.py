"""The rounds of repairs: which duties they hold, and when they begin anew."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.ledger.counts import compaction
from agent.ledger.leases import leasing
from agent.ledger.recovery import losses
from agent.maintenance import rounds
from agent.maintenance.duty import DutyLoop
from schemas.errors import DeniedError
from schemas.settings.config import Config
from schemas.task.record.topics import Topics


class Rested(Exception):  # noqa: N818 - not an error: the round is over
    """A round waits for the next one."""


class OneRound:
    """A clock that ends at the first sleep, a ledger that records its calls, no Kafka."""

    def __init__(self, denied: str = "") -> None:
        self.asked: list[Any] = []
        self._denied = denied

    async def write(self, work: Any, *_: Any) -> frozenset[Any]:
        self.asked.append(work)
        if self._denied:
            raise DeniedError(self._denied)
        return frozenset()

    def now_s(self) -> float:
        return 0.0

    async def sleep(self, _delay_s: float) -> None:
        raise Rested

    async def backlog(self, *_: Any) -> None:
        raise OSError("away")


def tidying(ledger: Any, lost_records: asyncio.Event | None = None) -> DutyLoop:
    """Return the slow round."""
    parts = SimpleNamespace(
        transactions=ledger,
        clock=ledger,
        topics=Topics("g"),
        admin=ledger,
        config=Config(),
        kafka=SimpleNamespace(logged=False),
        spans=None,
    )
    return rounds.repair_loops(
        cast("Any", parts),
        relay=cast("Any", SimpleNamespace(relay_once=None, drop_final=None)),
        applier=cast("Any", None),
        heartbeat=cast("Any", None),
        locks=None,
        lost_records=lost_records or asyncio.Event(),
        ask_about_tasks_of=lambda _gone: None,
        ask_about_batches=lambda _batches: None,
        partitions=(),
    )[2]


def test_each_round_rolls_up_counts_and_forgets_agents_though_kafka_is_away() -> None:
    """A failing duty does not hold up the others."""
    parts = OneRound()
    with pytest.raises(Rested):
        asyncio.run(tidying(parts)())

    assert {compaction.compact, leasing.forget, losses.forget} <= set(parts.asked)


def test_a_missing_right_ends_the_reaper() -> None:
    """The lack of a right does not pass: the agent ends, and its exit code tells an operator."""
    parts = OneRound("DELETE command denied to user 'app'@'10.0.0.5' for table 'tally'")

    with pytest.raises(DeniedError, match="tally"):
        asyncio.run(tidying(parts)())


@pytest.mark.parametrize(("lost_after_s", "pause_s"), [(None, 65.0), (0.0, 5.0), (3.0, 8.0)])
def test_the_slow_round_begins_soon_after_records_were_lost(
    lost_after_s: float | None, pause_s: float
) -> None:
    """The round also begins soon if the loss was noticed during the round before (after 0 s)."""
    lost_records, slept_s = asyncio.Event(), 0.0

    async def sleep(delay_s: float) -> None:
        nonlocal slept_s
        slept_s += delay_s
        if slept_s == lost_after_s:
            lost_records.set()

    if lost_after_s == 0.0:
        lost_records.set()
    asyncio.run(rounds._pause(cast("Any", SimpleNamespace(sleep=sleep)), lost_records))

    assert (slept_s, lost_records.is_set()) == (pause_s, False)
